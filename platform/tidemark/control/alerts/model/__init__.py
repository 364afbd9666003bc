"""Data of alerts: messages, state and settings."""
