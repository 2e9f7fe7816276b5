"""Results as tables, text, JSON and one HTML page."""
