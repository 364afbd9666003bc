"""The temporal (as-of) join as an operator kind."""
