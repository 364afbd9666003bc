"""An operator's epoch for one key: elements, functions, evictors, firings."""
