"""What users call to define assets and their checks."""
