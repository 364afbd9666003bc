"""Savepoints as jobs' users and programs ask for them."""
