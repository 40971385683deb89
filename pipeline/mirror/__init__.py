"""The mirror: copies topics to another cluster, each record once, the order of each partition kept."""
