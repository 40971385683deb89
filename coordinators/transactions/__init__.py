"""The coordinator of transactions as a pure state machine: one transactional id, events in, effects out."""
