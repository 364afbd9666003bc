"""A run whose epochs a query of Spark's plans."""
