"""What a keyed process function with state and timers needs: columns, rows, key state, one task over all keys."""
