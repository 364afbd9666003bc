"""State machines in SQL in the engine."""
