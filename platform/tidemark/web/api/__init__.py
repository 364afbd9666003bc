"""The REST API: its routes as data, the forms of requests, and the OpenAPI document that follows from both."""
