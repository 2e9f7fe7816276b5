"""A finding that can be posted: a folder with a reproducer, a trace and the draft of a mail."""
