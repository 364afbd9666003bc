"""State machines in SQL as an operator kind."""
