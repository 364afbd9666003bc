"""One key's epoch of an operator: elements, functions, evictors, firings."""
