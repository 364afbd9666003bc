"""Which elements of a key are duplicates, and for how long that is known."""
