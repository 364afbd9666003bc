"""Commands that show jobs."""
