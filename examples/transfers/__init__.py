"""Transfers between accounts: an example of results that are right in every version of every table."""
