"""Commands that read stored results and recordings."""
