"""What every kind of sink has: staged files, and what the job's log says of its place."""
