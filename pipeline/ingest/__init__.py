"""Files to a topic, each row once: planned in batches that are written down before they run."""
