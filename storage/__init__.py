"""One partition's log on disk. Synchronous, single owner; its file system and clock are passed in."""
