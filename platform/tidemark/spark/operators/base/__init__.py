"""Shared by all operators: the contract, partial results, state tables."""
