"""Built-in and custom aggregates."""
