"""Commands that serve the page of jobs and the REST API."""
