"""The runtimes and schemas of each operator kind."""
