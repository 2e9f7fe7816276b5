"""The direction of a hunt: cases that run the changed code in rare ways are varied more often."""
