"""The temporal (as-of) join in the engine."""
