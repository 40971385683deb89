"""The answer to a follower's fetch packed by hand, beside the general encoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError, ErrorCode
from echoless.protocol.native.codec import PACKED_BYTES_MAX, decode_message, encode_message
from echoless.protocol.native.replica_fetch_answer import ReplicaFetchAnswer, SessionAnswer
from echoless.protocol.native.replica_session import (
    FetchedRow,
    read_session_answer,
    to_session_answer,
)
from echoless.protocol.native.replication import ReplicaFetched, to_replica_fetch_answer
from tests.protocol.native.test_replication import FETCHED, SUCCESS

ROWS = st.integers(0, 2**63 - 1)
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


@given(st.lists(st.builds(FetchedRow, ROWS, FETCHED), max_size=5), ROWS, NUMBERS | st.none())
def test_the_packed_answer_in_a_session_is_that_of_the_general_encoder(
    rows: list[FetchedRow], session: int, number: int | None
) -> None:
    """The same, with the session and the numbers of the rows; and followers read what was packed."""
    packed = SessionAnswer(session, rows).packed(number)
    head = {"type": "replica_fetch", "correlation_id": number}
    general = {**head, **SUCCESS, **to_session_answer(session, rows)}
    answer = decode_message(b"".join(packed))
    assert answer == decode_message(encode_message(general))
    assert read_session_answer(answer, session) == [
        row
        if row.fetched.error is ErrorCode.NONE
        else FetchedRow(row.number, ReplicaFetched(row.fetched.error))
        for row in rows
    ]
    assert read_session_answer({**SUCCESS, "partitions": []}, session) is None
    with pytest.raises(DecodeError):
        read_session_answer(answer, session + 1)


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
