"""Past epochs of one key of a process function, run again."""
