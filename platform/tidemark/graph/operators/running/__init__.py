"""Running results of keyed streams as an operator kind."""
