"""Measures what a driver and its executors use: memory, collections of garbage, CPU time, bytes."""
