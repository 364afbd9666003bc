"""What a start is made of: a session's settings, its JVM before PySpark is loaded, classes that were compiled beforehand."""
