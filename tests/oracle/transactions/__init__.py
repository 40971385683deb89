"""The oracle for transactions: the same raw requests to Apache Kafka, 3.9 or 4.2, and to Echoless."""
