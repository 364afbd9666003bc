"""SQL queries over streams: parsed into the same graph as the fluent methods make."""
