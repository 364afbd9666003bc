"""What follows from what is wanted and observed, and doing it."""
