"""Every measure there is, each beside the function that computes it; `catalogue` lists them."""
