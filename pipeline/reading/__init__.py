"""The reader of Spark's data source `echoless`: `docs/reader.md`."""
