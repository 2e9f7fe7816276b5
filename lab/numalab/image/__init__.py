"""From a recipe to a root file system, built once."""
