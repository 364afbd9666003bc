"""``tidemark new``: creates a project from a template."""
