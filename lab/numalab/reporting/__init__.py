"""From stored results to the model of a report: comparisons, verdicts, timelines."""
