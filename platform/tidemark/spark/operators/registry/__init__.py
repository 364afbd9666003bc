"""What runs operators of each kind, and which columns they have."""
