"""Plans what an epoch reads of each source, without a query of Spark's."""
