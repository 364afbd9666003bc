"""The page of a job in a browser: its document, and the static files that show it."""
