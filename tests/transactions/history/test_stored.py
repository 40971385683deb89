"""Logs with transactions, read from their bytes."""

from __future__ import annotations

from dataclasses import replace

from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from tests.support.raw_batches import TRANSACTIONAL, plain_batch, split_log
from tests.transactions.history.events import Stored
from tests.transactions.history.stored import read_stored


def batch(offset: int, producer_id: int, *values: bytes, attributes: int = TRANSACTIONAL) -> bytes:
    plain = plain_batch(list(values), producer_id=producer_id, producer_epoch=0, base_sequence=0)
    return at(offset, replace(plain, attributes=attributes).encode())


def marker(offset: int, producer_id: int, kind: MarkerType) -> bytes:
    return at(offset, build_marker(EndMarker(kind, 0, 0), producer_id, 0, 1))


def at(offset: int, data: bytes) -> bytes:
    return offset.to_bytes(8, "big") + data[8:]


def test_each_record_has_the_marker_of_its_own_transaction() -> None:
    """Two producers interleave; one begins again after its abort and has not ended."""
    log = [
        batch(0, 7, b"a", b"b"),
        batch(2, 8, b"c"),
        batch(3, -1, b"plain", attributes=0),
        marker(4, 7, MarkerType.ABORT),
        batch(5, 7, b"d"),
        marker(6, 8, MarkerType.COMMIT),
    ]
    assert read_stored(split_log(b"".join(log))) == [
        Stored(0, "a", False),
        Stored(1, "b", False),
        Stored(2, "c", True),
        Stored(3, "plain", True),
        Stored(5, "d", None),
    ]
