"""Forks: discarding and promoting them."""
