"""The classic protocol: joins, rebalances, assignments, heartbeats and leaves of its members."""
