"""The native protocol: length-prefixed msgpack maps. `docs/native.md` describes every message."""
