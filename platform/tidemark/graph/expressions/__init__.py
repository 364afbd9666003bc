"""SQL expressions, types and functions in definitions, without a JVM."""
