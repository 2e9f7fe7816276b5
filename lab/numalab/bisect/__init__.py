"""Which commit, or which patch of a series, changed a measure."""
