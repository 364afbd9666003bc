"""Whether a changed job fits stored state."""
