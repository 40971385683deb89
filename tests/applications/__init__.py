"""Applications of consumer groups from their published artifacts, unchanged, each killed once with SIGKILL (README.md)."""
