"""A job as people, metrics and alerts see it."""
