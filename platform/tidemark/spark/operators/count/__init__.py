"""Count windows."""
