"""The shapes that `[shape]` of a topology file can name; every module here is imported."""
