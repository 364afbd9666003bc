"""What is stored of a job that runs on: specs, attempts, upgrade records."""
