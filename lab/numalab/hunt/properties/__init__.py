"""The properties that every kernel holds on every machine and load, with their tolerances."""
