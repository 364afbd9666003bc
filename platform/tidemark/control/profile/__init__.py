"""Sampling profiles of a running driver: its JVM by JFR, its Python processes by py-spy, both as flame graphs."""
