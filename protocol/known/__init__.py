"""Quick ways of reading what clients repeat, each beside the general way that it must equal.

A quick way accepts or knows nothing. It refuses nothing and has no message, so no error has two homes; what it accepts, the
general way accepts and reads the same: a property test compares both on arbitrary bytes. Nothing is remembered about a
partition, a role or a producer, so nothing has to be forgotten when these change.

| quick way | knows | saves, us | general way |
|---|---|---|---|
| `produce.py` | a body that begins as one before, up to the first partition | 2.1 of 3.7; four partitions 1.6 of 6.3 | `decode_produce_request` |
| `batch.py` | a batch whose header passes all steps | 0.9 of 2.2, for each batch | `check_container`, `check_batch` |
| `fetch.py` | a fetch of one partition as one before, at any offset | 0.9 of 2.4 | `decode_fetch_request` |
| `native_produce.py` | a message that begins as one before, up to its batch | 9.4 of 11.3 | `locate_fields`, `Produce.read` |
| `replica_fetch.py` | a follower's fetch, its fields in the usual order | 13 of 18 | `locate_fields`, `ReplicaFetch.read` |
| `replica_session.py` | the same in a session | 17 of 23 | `locate_fields`, `SessionFetch.read` |

Least of 3,000 rounds on two busy processors, where a request of 1 KB takes 30 us between frame and answer (produce), 15 (fetch), 50
(native) and a follower's fetch 45: so each is worth 3 % of a request, or more. A sixth is `KafkaDispatcher.__call__`, which compares
a request's header with the last one of its connection.

What is repeated is remembered by `memory.py`, for each connection alone.

Three of these files and the hot files of a produce (`broker/records/append.py`, `storage/log.py`, `protocol/dedup.py`) make named tuples by
`tuple.__new__`: 0.15 to 0.3 us less than calling the class, a few times a request. Elsewhere the class is called.
"""
