"""Markers go to this broker's partitions without a socket, and to others' by a native message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.transactions.marker_door import BrokerMarkerDoor
from echoless.protocol.errors import DecodeError, ErrorCode
from echoless.protocol.native.codec import decode_message, encode_message, locate_fields
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.transactions import (
    MarkerCodes,
    TransactionMarker,
    WriteMarkers,
    to_write_markers_answer,
)
from tests.broker.transactions.fake_door import place

MARKER = TransactionMarker(7, 5, 1, True, 3, 9, 2, (place(0), place(1)))
CODES = [[ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]]


class Other:
    """Another broker, which answers with `fields`."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = {"error": {"code": 0, "name": "", "message": "", "retriable": False}} | {
            **fields
        }
        self.got: list[tuple[int, WriteMarkers]] = []

    async def ask(
        self, broker_id: int, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        assert timeout_s > 0
        fields = Fields("message", locate_fields(encode_message(message)))
        self.got.append((broker_id, WriteMarkers.read(fields)))
        return decode_message(encode_message(self.fields))


async def nowhere(_markers: Sequence[TransactionMarker]) -> MarkerCodes:
    raise AssertionError("they are not for this broker")


async def test_this_broker_is_asked_without_a_message() -> None:
    """Its answer is passed on."""
    asked: list[Sequence[TransactionMarker]] = []

    async def here(markers: Sequence[TransactionMarker]) -> MarkerCodes:
        asked.append(markers)
        return CODES

    cluster: Any = SimpleNamespace()
    assert await BrokerMarkerDoor(1, cluster, here).write(1, [MARKER]) == CODES
    assert asked == [[MARKER]]


async def test_another_broker_is_asked_with_a_message() -> None:
    """It learns who asks, and all of the marker."""
    other: Any = Other(to_write_markers_answer(CODES))
    codes = await BrokerMarkerDoor(1, other, nowhere).write(2, [MARKER])
    assert [list(row) for row in codes] == CODES
    assert other.got == [(2, WriteMarkers(1, [MARKER]))]


async def test_an_answer_that_makes_no_sense_is_none() -> None:
    """No marker counts as written."""
    other: Any = Other({"transactions": []})
    with pytest.raises(DecodeError):
        await BrokerMarkerDoor(1, other, nowhere).write(2, [MARKER])
