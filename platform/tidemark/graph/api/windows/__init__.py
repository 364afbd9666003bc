"""Windows, as users declare them: assigners, triggers, evictors, functions, and the windowed stream."""
