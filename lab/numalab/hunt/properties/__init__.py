"""What has to hold of every kernel, machine and load, with its tolerance."""
