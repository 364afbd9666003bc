"""The public functions for savepoints, and their maintenance."""
