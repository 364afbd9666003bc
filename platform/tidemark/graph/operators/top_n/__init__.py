"""The best rows of each group, as a changelog."""
