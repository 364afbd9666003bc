"""Delta: tables as sources, of added rows and of changes."""
