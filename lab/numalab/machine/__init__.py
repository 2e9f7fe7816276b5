"""The machine that is booted, and the job it is given: plain values."""
