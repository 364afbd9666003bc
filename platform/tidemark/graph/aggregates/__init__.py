"""The built-in aggregates and users' own."""
