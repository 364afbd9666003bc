"""Export and import of savepoints."""
