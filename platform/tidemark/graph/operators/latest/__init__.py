"""The newest row of each key, as a changelog."""
