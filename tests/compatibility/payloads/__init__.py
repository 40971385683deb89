"""Random compressed payloads: what is stored of them, and what consumers read of that."""
