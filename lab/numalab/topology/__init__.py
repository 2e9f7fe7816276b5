"""The machine we ask for: shapes, distances, and what the kernel will make of them."""
