"""The autoscaler: parallelism and intake of jobs follow their load."""
