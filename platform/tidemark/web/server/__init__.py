"""The application that serves the page and the API, and the program that listens."""
