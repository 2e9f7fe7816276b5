"""Make a confirmed case simpler and more plausible, as long as it still shows the violation."""
