"""What a booted guest says of its machine, and where that differs from what was asked."""
