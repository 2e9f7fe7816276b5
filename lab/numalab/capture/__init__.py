"""What to record in a guest, and recordings and counters into tables."""
