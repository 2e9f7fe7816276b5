"""What memory costs in `timed` mode: from a topology's `[memory]` to the model's parameter file."""
