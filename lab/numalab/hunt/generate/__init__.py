"""Generate cases from a seed: machines and loads."""
