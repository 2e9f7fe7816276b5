"""Axes of studies (`numalab.study.axis.register_axis`); every module here is imported."""
