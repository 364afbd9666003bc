"""What jobs that run on have done, as events."""
