"""Windows as an operator kind: node, checks, stored definition, descriptions."""
