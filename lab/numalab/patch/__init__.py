"""What a patch changes: experiment, hunt and verdict of `numalab patch`."""
