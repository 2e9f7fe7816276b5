"""How often functions of the scheduler are called in each load, on both kernels."""
