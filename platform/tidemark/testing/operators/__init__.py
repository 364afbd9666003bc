"""Each operator kind in plain Python, element by element, for ``OperatorHarness``."""
