"""The ingest: writes the rows of files to a topic, each once, in batches that are recorded before they run."""
