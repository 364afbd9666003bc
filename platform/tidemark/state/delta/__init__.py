"""The tags and settings of commits to Delta tables."""
