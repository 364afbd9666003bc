"""The regular join of changelogs as an operator kind."""
