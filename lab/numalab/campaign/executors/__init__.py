"""What carries tasks out: worker processes of this host, or Dask workers of a cluster."""
