"""The coordinator of transactions: each transactional id is a pure state machine, events in, effects out."""
