"""Plausible cases: a measure of a case, and plainer cases to try when shrinking."""
