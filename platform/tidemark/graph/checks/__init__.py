"""What is checked when a stream is defined, and the columns that follow."""
