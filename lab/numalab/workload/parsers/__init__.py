"""Parsers of output (`metric_parsers.register_parser`); every module here is imported."""
