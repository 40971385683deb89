"""Batches and headers for the tests of this room, and the ones that real clients sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from echoless.protocol.record_batch import BatchHeader, Codec
from echoless.protocol.records import Record
from echoless.protocol.sequence import NO_SEQUENCE

_CAPTURED = Path(__file__).parents[1] / "golden" / "record_batches.txt"

CAPTURED_RECORDS: Final = [
    Record(0, 1700000000000, b"key", b"value"),
    Record(1, 1700000000001, None, b"no key"),
    Record(
        2,
        1700000000007,
        b"tombstone",
        None,
        (("trace", b"\x01\x02"), ("empty", b""), ("null", None)),
    ),
    Record(3, 1699999999990, b"", b""),
    Record(4, 1700000000100, b"big", b"echo" * 100),
]
"""The records of every captured batch."""


def captured_batches() -> dict[str, bytes]:
    """The captured batches by `client-codec`."""
    return {name: bytes.fromhex(data) for name, data in _captured_lines()}


def _captured_lines() -> Iterator[tuple[str, str]]:
    for line in _CAPTURED.read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            name, data = line.split()
            yield name, data


def captured_codec(name: str) -> Codec:
    return Codec[name.rpartition("-")[2].upper()]


def header(
    base_sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    crc: int = 1,
    is_control: bool = False,
    max_timestamp: int = 1000,
    attributes: int = 0,
) -> BatchHeader:
    """The header of `count` records of producer id 7, from `base_sequence` on."""
    return BatchHeader(
        base_offset=0,
        batch_length=49 + 8 * count,
        partition_leader_epoch=-1,
        magic=2,
        crc=crc,
        attributes=attributes | (0x20 if is_control else 0),
        last_offset_delta=count - 1,
        base_timestamp=1000,
        max_timestamp=max_timestamp,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=NO_SEQUENCE if is_control else base_sequence,
        record_count=count,
    )
