"""A study file into a plan, and a plan into results."""
