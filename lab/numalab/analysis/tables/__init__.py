"""The table of events, and the tables of spans that are made of it."""
