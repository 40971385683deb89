"""The protocol's flows as named scenarios, for any producer: `docs/scenarios.md`."""
