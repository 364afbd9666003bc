"""The ``tidemark`` command."""
