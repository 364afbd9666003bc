"""Upgrades, step by step."""
