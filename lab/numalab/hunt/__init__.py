"""Looks for machines and loads on which a kernel misbehaves, and makes them small."""
