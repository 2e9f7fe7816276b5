"""The host as hardware, and what running guests have taken of it."""
