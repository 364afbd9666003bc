"""What an alert, its message, its state and its settings are."""
