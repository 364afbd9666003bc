"""Connectors in the fluent API: sources that are more than a specification."""
