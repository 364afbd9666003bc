"""SQL expressions, types and functions as definitions see them, without a JVM."""
