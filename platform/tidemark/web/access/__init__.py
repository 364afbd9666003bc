"""Who may do what: bearer tokens with roles, and the hosts and origins that requests may name."""
