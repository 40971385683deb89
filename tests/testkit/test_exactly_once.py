"""Sent and stored records compared."""

from __future__ import annotations

from typing import Any

import pytest

from echoless.testkit.exactly_once import compare, describe
from echoless.testkit.stored_records import StoredRecord


def _stored(*values: bytes, partition: int = 0) -> list[StoredRecord]:
    return [StoredRecord(partition, offset, None, value) for offset, value in enumerate(values)]


def _append(base_offset: int, base_sequence: int, count: int) -> dict[str, Any]:
    return {
        "decision": "append",
        "topic": "orders",
        "partition": 0,
        "base_offset": base_offset,
        "base_sequence": base_sequence,
        "last_sequence": base_sequence + count - 1,
        "producer_id": 7,
        "producer_epoch": 1,
        "client_id": "app",
        "address": "?",
    }


def test_stored_once_and_in_order_is_no_difference() -> None:
    """Text and bytes are the same; nothing is reported."""
    assert not compare(["a", b"b"], _stored(b"a", b"b"))
    assert not compare([], [])


def test_lost_doubled_and_unexpected_are_told_apart() -> None:
    """Each record is of one kind, with every copy of what is doubled."""
    found = compare([b"a", b"b", b"c"], _stored(b"a", b"b", b"b", b"x"))
    assert found.lost == [(None, b"c")]
    assert [[one.offset for one in copies] for copies in found.doubled.values()] == [[1, 2]]
    assert [one.value for one in found.unexpected] == [b"x"]
    assert not found.out_of_order, "a second copy is doubled, not out of order"


def test_what_was_sent_twice_has_to_be_stored_twice() -> None:
    """Equal records are counted, not confused."""
    assert not compare([b"a", b"a"], _stored(b"a", b"a"))
    assert compare([b"a", b"a"], _stored(b"a")).lost == [(None, b"a")]
    assert len(compare([b"a", b"a"], _stored(b"a", b"a", b"a")).doubled) == 1


def test_order_holds_within_a_partition() -> None:
    """Neighbours in one partition are compared, never those of two."""
    stored = [*_stored(b"b", b"a"), *_stored(b"c", partition=1)]
    ((first, second),) = compare([b"a", b"b", b"c"], stored).out_of_order
    assert (first.value, second.value) == (b"b", b"a")
    two = [*_stored(b"b"), *_stored(b"a", partition=1)]
    assert not compare([b"a", b"b"], two)
    assert not compare([b"a", b"b", b"c"], stored, ordered=False)


def test_pairs_compare_keys_too() -> None:
    """A record with another key is another record; None is no empty text."""
    stored = [StoredRecord(0, 0, b"k", b"v"), StoredRecord(0, 1, None, b"w")]
    assert not compare([("k", "v"), (None, b"w")], stored)
    assert compare([("other", "v"), ("", b"w")], stored).lost == [(b"other", b"v"), (b"", b"w")]
    with pytest.raises(TypeError, match="both values and pairs"):
        compare([("k", "v"), "w"], stored)


def test_description_names_who_stored_each_copy() -> None:
    """Each copy is shown with partition, offset, producer, sequence and client."""
    found = compare([b"a", b"b", b"c"], _stored(b"b", b"a", b"a"))
    text = describe("orders", found, [_append(0, 40, 2), _append(5, 0, 1)])
    assert text.splitlines() == [
        "orders: 3 sent, 3 stored: 1 lost, 1 doubled, 1 out of order",
        "  lost: b'c'",
        "  doubled: b'a'",
        "    at 0:1, sequence 41 of producer 7 epoch 1, client app",
        "    at 0:2; no decision about it is remembered",
        "  out of order: b'a'",
        "    at 0:1, sequence 41 of producer 7 epoch 1, client app",
        "    was sent before b'b'",
        "    at 0:0, sequence 40 of producer 7 epoch 1, client app",
    ]


def test_description_is_bounded() -> None:
    """A thousand lost records do not make a thousand lines."""
    lines = describe("orders", compare(map(str, range(1000)), []), []).splitlines()
    assert lines[0] == "orders: 1000 sent, 0 stored: 1000 lost"
    assert (len(lines), lines[-1]) == (12, "  lost: and 990 more")
