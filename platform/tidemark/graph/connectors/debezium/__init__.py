"""Debezium: its records as a changelog."""
