"""Changelogs: streams of changes of rows with a key."""
