"""The shapes that `[shape]` of a topology file can name: one class for each."""

from numalab.topology.shapes import kinds

__all__ = ["kinds"]
