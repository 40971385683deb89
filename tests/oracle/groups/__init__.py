"""The oracle for groups: random histories of raw group requests, played to Apache Kafka and to Echoless in step (README.md)."""
