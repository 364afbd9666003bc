"""Functions over elements without keys in the engine."""
