"""A report as a value, and its rendering as tables, text, JSON and pages."""
