"""The worked example of `docs/formats/record-batch.md`, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.protocol.record_batch import compute_crc, read_header
from echoless.protocol.records import Record, build_batch, read_records

PAGE = Path(__file__).parents[2] / "docs/formats/record-batch.md"
RECORDS = [
    Record(0, 1700000000000, b"user-7", b"hello", (("trace", b"\x2a"),)),
    Record(1, 1700000000005, None, None),
]


@pytest.fixture(scope="module")
def example():
    """The left column of the page's listing; two spaces end it."""
    listing = PAGE.read_text(encoding="utf-8").split("```")[1]
    return bytes.fromhex("".join(line.partition("  ")[0] for line in listing.splitlines()))


def test_the_page_shows_what_is_built(example):
    """The documented records and producer give the documented bytes."""
    built = build_batch(RECORDS, producer_id=4000, producer_epoch=1, base_sequence=41)
    assert built == example


def test_the_page_shows_what_is_read(example):
    """The documented bytes are a whole batch with the documented records."""
    header = read_header(example)
    assert header.crc == compute_crc(example)
    assert (header.size, header.last_offset, header.last_sequence) == (len(example), 1, 42)
    assert read_records(example) == RECORDS
