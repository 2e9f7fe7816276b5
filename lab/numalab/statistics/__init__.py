"""What a few runs can show: summaries, tests, and the smallest effects they could have shown."""
