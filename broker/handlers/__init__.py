"""One file per Kafka API: its declaration (`API`) at the top, its `handle` below."""
