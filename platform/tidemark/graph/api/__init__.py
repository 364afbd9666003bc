"""The fluent API: sources, streams, windows, triggers, functions, sinks."""
