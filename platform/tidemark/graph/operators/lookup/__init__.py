"""The join with a table as an operator kind."""
