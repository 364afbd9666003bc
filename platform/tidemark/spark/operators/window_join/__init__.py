"""Window joins in the engine."""
