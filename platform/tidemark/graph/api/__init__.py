"""What users write: sources, streams, windows, triggers, functions, sinks."""
