"""What programs and commands ask of jobs, and waiting for it."""
