"""What happens before a run: checks that need no JVM, and the start of Spark."""
