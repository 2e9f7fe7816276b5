"""Commands `numalab hunt` and `numalab bisect --case`."""
