"""Commands that run and change jobs."""
