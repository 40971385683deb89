"""Files to a topic, each row once: planned in batches that are recorded before they run."""
