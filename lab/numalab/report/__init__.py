"""The report of a study: built from stored results, rendered as text, JSON and a page."""
