"""What a job's own tests need: a clock set by hand, and processes that die at a named point."""
