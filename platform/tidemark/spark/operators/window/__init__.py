"""Windows in the engine: what all of their strategies share."""
