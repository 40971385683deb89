"""The oracle for fetch sessions (KIP-227): the same requests to Apache Kafka 3.9 and to Echoless."""
