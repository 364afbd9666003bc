"""Windows in the engine: runtimes, schemas and state readers of all strategies."""
