"""Alerts: rules, state, delivery."""
