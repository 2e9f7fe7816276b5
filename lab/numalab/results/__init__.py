"""What lies on disk of a study: its files, read in one place."""
