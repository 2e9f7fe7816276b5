"""One guest, from its start to its end: watched, rescued, its placement proved."""
