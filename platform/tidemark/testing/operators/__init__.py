"""The pure form of each operator kind, for ``OperatorHarness``: the contract element by element."""
