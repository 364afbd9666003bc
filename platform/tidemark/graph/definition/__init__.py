"""A job's definition as stored, and what a change of it means."""
