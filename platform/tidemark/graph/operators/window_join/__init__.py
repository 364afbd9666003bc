"""Window joins as an operator kind."""
