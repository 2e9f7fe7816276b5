"""Compare a kernel with its reference kernel, boot by boot."""
