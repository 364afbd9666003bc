"""Rules that are evaluated, silences, and when notifications are sent."""
