"""The State Processor API, and state that is migrated."""
