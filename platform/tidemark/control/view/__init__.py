"""A job as commands, metrics and alerts show it."""
