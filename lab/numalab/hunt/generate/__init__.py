"""Cases from a seed: machines, loads, and which of them are worth a boot."""
