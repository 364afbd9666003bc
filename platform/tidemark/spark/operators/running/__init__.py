"""Running results in the engine."""
