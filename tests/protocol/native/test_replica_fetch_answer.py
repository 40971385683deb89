"""The answer to a follower's fetch packed by hand, beside the general encoder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.codec import PACKED_BYTES_MAX, decode_message, encode_message
from echoless.protocol.native.replica_fetch_answer import ReplicaFetchAnswer
from echoless.protocol.native.replication import ReplicaFetched, to_replica_fetch_answer
from tests.protocol.native.test_replication import FETCHED, SUCCESS

NUMBERS = st.integers(-(2**63), 2**64 - 1)


@given(st.lists(FETCHED, max_size=5), NUMBERS | st.none())
def test_the_packed_answer_is_that_of_the_general_encoder(
    fetched: list[ReplicaFetched], number: int | None
) -> None:
    """The same fields with the same values, for errors, divergences and batches of any number."""
    packed = ReplicaFetchAnswer(fetched).packed(number)
    head = {"type": "replica_fetch", "correlation_id": number}
    general = {**head, **SUCCESS, **to_replica_fetch_answer(fetched)}
    assert decode_message(b"".join(packed)) == decode_message(encode_message(general))


def test_large_batches_are_buffers_of_their_own() -> None:
    """They are sent as they were read; small ones are copied, which takes less than another buffer."""
    large = bytes(PACKED_BYTES_MAX + 1)
    rows = [
        ReplicaFetched(ErrorCode.NONE, 1, 0, None, one)
        for one in (b"small", large, bytes(PACKED_BYTES_MAX), large)
    ]
    packed = ReplicaFetchAnswer(rows).packed(1)
    assert [one is large for one in packed] == [False, True, False, True, False]
    decoded = decode_message(b"".join(packed))["partitions"]
    assert [row["batches"] for row in decoded] == [row.batches for row in rows]
