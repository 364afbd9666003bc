"""Drivers' reports: status, history, load."""
