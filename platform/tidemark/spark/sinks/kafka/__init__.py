"""Topics of Kafka: rows are staged as keys and values, and published by librdkafka, in transactions with a marker of the epoch."""
