"""A run: recovery, query, driver, deadlines, housekeeping."""
