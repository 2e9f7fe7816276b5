"""Builds a report from stored results: comparisons, verdicts, runs without a result."""
