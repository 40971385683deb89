"""The codecs of the records in which coordinators keep their state, in Kafka's formats.

A key begins with a version, which says what the record is about; a value begins with the version of its own layout.
`__consumer_offsets` holds groups and committed offsets (`docs/formats/consumer-offsets.md`), `__transaction_state` holds
transactional ids (`docs/formats/transaction-state.md`).
"""
