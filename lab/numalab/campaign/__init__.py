"""A plan carried out: which runs start when, on this host or on a cluster, until each has ended."""
