"""A study file, checked, and the plan that it makes."""
