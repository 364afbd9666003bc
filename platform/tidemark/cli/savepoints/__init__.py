"""Commands on savepoints, rewinds and forks."""
