"""The native port: msgpack messages, answered by the code that answers the Kafka port."""
