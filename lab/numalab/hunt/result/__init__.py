"""The stored result of a hunt: its coverage, and its page."""
