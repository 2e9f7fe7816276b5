"""Kconfig: fragments merged into a configuration, and checked against the tree."""
