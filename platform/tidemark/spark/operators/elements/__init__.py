"""The base of operators that call Python for elements without keys: one pass, whose rows are written once."""
