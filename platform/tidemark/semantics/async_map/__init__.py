"""Asynchronous calls for elements: many in flight at once, with timeout and retries."""
