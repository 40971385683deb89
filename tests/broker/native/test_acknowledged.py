"""The packed answer to a stored batch has the bytes that packing its fields has."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.native.acknowledged import Acknowledged, encode_acknowledged
from echoless.broker.native.framed import framed

OFFSETS = st.one_of(st.integers(-1, 2**63 - 1), st.integers(-1, 70_000))
IDS = st.one_of(st.none(), st.integers(-(2**63), 2**64 - 1), st.integers(-40, 70_000))


@given(
    correlation_id=IDS,
    answer=st.builds(Acknowledged, OFFSETS, OFFSETS, OFFSETS, st.booleans()),
)
def test_the_answer_is_what_the_encoder_makes_of_its_fields(correlation_id, answer):
    """Every offset, time and id, byte by byte, with its length."""
    head = {"type": "produce", "correlation_id": correlation_id}
    whole = framed(head, answer.fields())
    assert whole is not None
    packed = encode_acknowledged(correlation_id, answer)
    assert packed == b"".join(whole)
    assert framed(head, answer) == (packed,)
    assert struct.unpack_from(">i", packed) == (len(packed) - 4,)
