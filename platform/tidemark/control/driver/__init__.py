"""The program of a driver."""
