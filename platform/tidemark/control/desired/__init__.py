"""What is wanted of a job: specs, their checks, attempts."""
