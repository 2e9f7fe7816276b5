"""Imports of other machines as topologies."""
