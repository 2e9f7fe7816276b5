"""Executors of tasks: worker processes of this host, or Dask workers of a cluster."""
