"""Delta tables: commits, positions, upserts, maintenance."""
