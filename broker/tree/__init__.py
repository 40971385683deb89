"""The tree of versioned nodes, and the stores that implement it."""
