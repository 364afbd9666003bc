"""What drivers report: status, history, load."""
