"""Loads: what they are, their text, their kinds, and what the driver prints about them."""
