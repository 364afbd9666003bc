"""The State Processor API, and state migration."""
