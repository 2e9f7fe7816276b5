"""The shapes that `[shape]` of a topology file can name: one class for each."""

from numalab.topology.shapes import backplane, circles, grids, hypercube, line, star

__all__ = ["backplane", "circles", "grids", "hypercube", "line", "star"]
