"""Memory accesses of one guest in mode timed: by thread, node, region and line."""
