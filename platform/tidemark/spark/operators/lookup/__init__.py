"""The join with a table in the engine."""
