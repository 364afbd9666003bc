"""Topics of Kafka: options with secrets, and values that are decoded."""
