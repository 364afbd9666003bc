"""The regular join of changelogs in the engine."""
