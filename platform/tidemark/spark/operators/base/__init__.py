"""What every operator has: the contract, partial results, state tables."""
