"""A report as text, Markdown, JSON, JUnit, Perfetto trace or annotations."""
