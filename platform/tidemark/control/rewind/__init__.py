"""Rewinds of jobs that run on."""
