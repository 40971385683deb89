"""One file per Kafka API: declared in `apis.py`, with its `handle` in the file of its name."""
