"""A report as one HTML page, with its drawings."""
