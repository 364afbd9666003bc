"""Joins without Spark."""
