"""The exactly-once sink: Spark's rows, stored once however often a batch runs; `docs/sink.md`."""
