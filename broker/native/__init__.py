"""The native port: msgpack messages, answered by what answers the Kafka port."""
