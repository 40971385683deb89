"""Producer state: what a log knows of its producers, in memory and on disk."""
