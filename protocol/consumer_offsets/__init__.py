"""The records of `__consumer_offsets`: Kafka's formats of committed offsets and of groups (`docs/formats/consumer-offsets.md`)."""
