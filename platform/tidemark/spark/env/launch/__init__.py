"""Starts the program of a JVM as Spark does, without Spark's own launcher."""
