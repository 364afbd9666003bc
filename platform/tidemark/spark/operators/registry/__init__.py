"""Which operator runs a window, and how its state is read."""
