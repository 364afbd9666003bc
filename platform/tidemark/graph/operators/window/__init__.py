"""Windows as an operator kind: its node, its checks, its definition as stored, its words."""
