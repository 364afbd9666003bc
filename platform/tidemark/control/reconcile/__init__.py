"""Plans actions from desired and observed state, and carries them out."""
