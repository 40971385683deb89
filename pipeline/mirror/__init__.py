"""Topics of one cluster to another, each record once, the order of each partition kept."""
