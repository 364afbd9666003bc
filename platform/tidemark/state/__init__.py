"""What is kept of jobs: layout, the job log, records, retention, and what is read of them without Spark."""
