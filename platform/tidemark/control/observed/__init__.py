"""What is observed of a job: attempts, leases, processes."""
