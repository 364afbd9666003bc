"""Requests of programs and commands to jobs, and waiting for them."""
