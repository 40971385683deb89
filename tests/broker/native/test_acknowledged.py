"""The packed answer to a stored batch has the bytes that packing its fields has."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.native.acknowledged import encode_acknowledged, produced_fields
from echoless.broker.native.framed import framed
from echoless.broker.records.append import RepeatProduced
from echoless.protocol.errors import ErrorCode
from echoless.protocol.produce import PartitionProduced

OFFSETS = st.one_of(st.integers(-1, 2**63 - 1), st.integers(-1, 70_000))
IDS = st.one_of(st.none(), st.integers(-(2**63), 2**64 - 1), st.integers(-40, 70_000))


@given(
    correlation_id=IDS,
    kind=st.sampled_from((PartitionProduced, RepeatProduced)),
    offsets=st.tuples(OFFSETS, OFFSETS, OFFSETS),
)
def test_the_answer_is_what_the_encoder_makes_of_its_fields(correlation_id, kind, offsets):
    """Every offset, time and id, of a new batch and of a repeat, byte by byte, with its length."""
    produced = kind(0, ErrorCode.NONE, *offsets)
    assert produced_fields(produced)["duplicate"] is (kind is RepeatProduced)
    head = {"type": "produce", "correlation_id": correlation_id}
    whole = framed(head, produced_fields(produced))
    assert whole is not None
    packed = encode_acknowledged(correlation_id, produced)
    assert packed == b"".join(whole)
    assert framed(head, produced) == (packed,)
    assert struct.unpack_from(">i", packed) == (len(packed) - 4,)
