"""A job: its outputs, checks, explanation."""
