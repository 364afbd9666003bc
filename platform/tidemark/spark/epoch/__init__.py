"""One epoch: topology, stateless rows, operators, balance, progress."""
