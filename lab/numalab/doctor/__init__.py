"""Checks of this host, their fixes, and the report that a user sends of the host."""
