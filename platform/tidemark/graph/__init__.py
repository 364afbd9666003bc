"""What users write: an immutable graph of sources, operators and sinks, checked before anything runs."""
