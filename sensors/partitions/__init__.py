"""Complete partitions, and the runs downstream of them."""
