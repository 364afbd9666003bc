"""What sinks that write to tables of databases have in common, as they are declared."""
