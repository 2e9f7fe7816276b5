"""Sampled sources (`numalab.capture.samples.register_source`); every module here is imported."""
