"""Jobs that are not well, and verdicts of checks."""
