"""The oracle for groups of the consumer protocol (KIP-848): the same requests to Apache Kafka 4.2 and to Echoless."""
