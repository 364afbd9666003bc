"""What a savepoint, a restore and a verdict are."""
