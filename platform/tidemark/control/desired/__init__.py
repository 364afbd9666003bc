"""A job's desired state: specs, their checks, attempts."""
