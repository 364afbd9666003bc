"""Functions over elements without keys: no state, no timers."""
