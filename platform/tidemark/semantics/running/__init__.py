"""Operators that emit for each element, and keep one value of each key that every element replaces."""
