"""What another machine says about itself, as a topology."""
