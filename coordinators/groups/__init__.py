"""Consumer groups: events in, effects out; no clock, no randomness, no event loop."""
