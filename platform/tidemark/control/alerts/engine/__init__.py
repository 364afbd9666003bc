"""Evaluation of alert rules, silences, and when notifications are sent."""
