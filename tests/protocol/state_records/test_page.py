"""The worked example of `docs/formats/consumer-offsets.md`, byte for byte."""

from __future__ import annotations

from pathlib import Path

from echoless.protocol.state_records.classic_group_value import (
    ClassicMemberValue,
    GroupValue,
    read_group_value,
    write_group_value,
)
from echoless.protocol.state_records.group_keys import (
    GroupKey,
    OffsetKey,
    read_key,
    write_group_key,
    write_offset_key,
)
from echoless.protocol.state_records.offset_value import (
    OffsetValue,
    read_offset_value,
    write_offset_value,
)

PAGE = Path(__file__).parents[3] / "docs/formats/consumer-offsets.md"
KEY = OffsetKey("orders", "t", 3)
OFFSET = OffsetValue(42, 7, "m", 1_700_000_000_000)
MEMBER = ClassicMemberValue("c-1", "i", "c", "/127.0.0.1", 60_000, 10_000, b"\x00\x01", b"\x00\x02")
STABLE = GroupValue("consumer", 6, "range", "c-1", 1_700_000_000_000, (MEMBER,))
REBALANCING = STABLE._replace(is_rebalancing=True)


def test_the_page_shows_what_is_written():
    """The documented records give the documented bytes, in their order."""
    listing = PAGE.read_text(encoding="utf-8").split("```")[1]
    example = bytes.fromhex("".join(line.partition("  ")[0] for line in listing.splitlines()))
    written = (
        write_offset_key(KEY),
        write_offset_value(OFFSET),
        write_group_key("orders"),
        write_group_value(STABLE),
        write_group_value(REBALANCING),
    )
    assert b"".join(written) == example


def test_what_is_written_is_read():
    """The documented records come back."""
    assert read_key(write_offset_key(KEY)) == KEY
    assert read_offset_value(write_offset_value(OFFSET)) == OFFSET
    assert read_key(write_group_key("orders")) == GroupKey("orders")
    for value in (STABLE, REBALANCING):
        assert read_group_value(write_group_value(value)) == value
