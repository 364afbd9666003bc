"""Savepoints: taking, restoring and forking from pinned epochs."""
