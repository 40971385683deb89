"""The transaction index: Kafka's bytes, and Kafka's answers to look-ups."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.control_records import EndMarker, MarkerType
from echoless.protocol.producer_effect import effect_of
from echoless.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT
from echoless.storage.producers.open_transactions import ClosedTransaction, OpenTransactions
from echoless.storage.transaction_index import ENTRY_SIZE, TransactionIndex
from tests.compatibility.kafka_tools import run_tool
from tests.protocol.sample_batches import header
from tests.toolchain import require

ENTRIES: Final = (
    ClosedTransaction(1, 0, 10, 11),
    ClosedTransaction(1, 12, 20, 13),
    ClosedTransaction(2**63 - 2, 13, 30, 31),
)
WRITTEN_BY_KAFKA: Final = bytes.fromhex(
    "0000 0000000000000001 0000000000000000 000000000000000a 000000000000000b"
    "0000 0000000000000001 000000000000000c 0000000000000014 000000000000000d"
    "0000 7ffffffffffffffe 000000000000000d 000000000000001e 000000000000001f"
)
"""The file that `TransactionIndex.append` of kafka-storage 3.9.1 wrote for these entries and base offset 5."""


def index_of(*entries: ClosedTransaction, base_offset: int = 5) -> TransactionIndex:
    index = TransactionIndex(base_offset)
    for entry in entries:
        index.append(entry)
    return index


def decoded(data: bytes, base_offset: int = 5) -> TransactionIndex:
    index = TransactionIndex.decode(base_offset, data)
    assert index is not None
    return index


def test_the_file_is_kafkas() -> None:
    """Written and read, byte for byte."""
    assert index_of(*ENTRIES).encode() == WRITTEN_BY_KAFKA
    index = decoded(WRITTEN_BY_KAFKA)
    assert tuple(index) == ENTRIES
    assert (len(index), index.last) == (3, ENTRIES[-1])


@pytest.mark.parametrize(
    ("start", "end", "first_offsets", "is_complete"),
    [
        (5, 12, [0], True),
        (12, 13, [12], True),
        (25, 31, [13], True),
        (0, 5, [0], True),
        (5, 100, [0, 12, 13], False),
        (31, 40, [], False),
        (10, 11, [0], True),
        (14, 20, [12, 13], True),
        (30, 31, [13], True),
        (20, 21, [12, 13], True),
    ],
)
def test_look_ups_answer_as_kafkas(
    start: int, end: int, first_offsets: list[int], is_complete: bool
) -> None:
    """`collectAbortedTxns` of kafka-storage 3.9.1 answered this, for the file above."""
    found = index_of(*ENTRIES).find(start, end)
    assert [one.first_offset for one in found.transactions] == first_offsets
    assert found.is_complete is is_complete


def test_truncation_drops_markers_from_the_offset_on() -> None:
    """Kafka's `truncateTo` as well: a marker at the offset goes."""
    index = index_of(*ENTRIES)
    index.truncate_to(21)
    assert tuple(index) == ENTRIES[:2]
    index.truncate_to(20)
    assert tuple(index) == ENTRIES[:1]
    index.truncate_to(0)
    assert (index.last, index.encode()) == (None, b"")
    index.append(ENTRIES[2])
    assert tuple(index) == ENTRIES[2:]


def test_markers_rise() -> None:
    """An entry at or before the last marker is our own mistake."""
    index = index_of(ENTRIES[0])
    with pytest.raises(AssertionError, match="after ClosedTransaction"):
        index.append(ENTRIES[0])


def test_what_cannot_be_an_index_is_refused() -> None:
    """A cut entry, another version, a marker out of order or below the segment, an impossible range."""
    for size in range(1, len(WRITTEN_BY_KAFKA)):
        whole = TransactionIndex.decode(5, WRITTEN_BY_KAFKA[:size])
        assert (whole is not None) == (size % ENTRY_SIZE == 0)
    entry, later = WRITTEN_BY_KAFKA[:ENTRY_SIZE], WRITTEN_BY_KAFKA[ENTRY_SIZE:]
    wrong = [
        b"\x00\x01" + entry[2:],
        entry + entry,
        later + entry,
        entry[:2] + bytes([255]) * 8 + entry[10:],
        entry[:10] + (11).to_bytes(8) + entry[18:],
        entry[:26] + (12).to_bytes(8),
        entry[:26] + bytes([255]) * 8,
    ]
    for data in wrong:
        assert TransactionIndex.decode(5, data) is None
    assert TransactionIndex.decode(11, entry) is None
    assert TransactionIndex.decode(10, entry) is not None


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[ClosedTransaction], list[int], int]:
    """Aborted transactions of a log with several producers, where its segments begin, and its end."""
    open_transactions, aborted, end = OpenTransactions(), [], 0
    kinds = st.tuples(st.integers(0, 3), st.sampled_from(["data", "data", *MarkerType]))
    for producer_id, kind in draw(st.lists(kinds, max_size=40)):
        if kind == "data":
            batch, marker = header(0, attributes=TRANSACTIONAL_BIT), None
        else:
            batch, marker = header(-1, attributes=CONTROL_BIT), EndMarker(MarkerType(kind), 0)
        batch = batch._replace(producer_id=producer_id)
        ended = open_transactions.note(batch, end, effect_of(batch, marker))
        if ended is not None:
            aborted.append(ended)
        end += 1
    bases = draw(st.sets(st.integers(1, max(end, 1)), max_size=4))
    return aborted, [0, *sorted(bases)], end


@given(logs(), st.integers(0, 45), st.integers(1, 45))
def test_a_look_up_over_segments_finds_all(
    log: tuple[list[ClosedTransaction], list[int], int], start: int, count: int
) -> None:
    """From the segment of `start` on, up to the first complete answer, lies every abort that overlaps."""
    aborted, bases, _ = log
    end = start + count
    indexes = []
    for base, next_base in zip(bases, [*bases[1:], 2**62], strict=True):
        mine = [one for one in aborted if base <= one.last_offset < next_base]
        indexes.append(decoded(index_of(*mine, base_offset=base).encode(), base))
    first = max(place for place, base in enumerate(bases) if base <= start)
    found: list[ClosedTransaction] = []
    for index in indexes[first:]:
        part = index.find(start, end)
        found += part.transactions
        if part.is_complete:
            break
    assert found == [a for a in aborted if a.last_offset >= start and a.first_offset < end]


@pytest.mark.kafka
@pytest.mark.slow
def test_kafkas_dump_reads_the_file(tmp_path: Path) -> None:
    """`kafka-dump-log --files X.txnindex` shows every entry."""
    require("java", "kafka")
    path = tmp_path / "00000000000000000005.txnindex"
    path.write_bytes(index_of(*ENTRIES).encode())
    printed = run_tool("kafka.tools.DumpLogSegments", "--files", str(path))
    assert [line for line in printed.splitlines() if line.startswith("version")] == [
        f"version: 0 producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
        f"lastStableOffset: {stable}"
        for producer_id, first, last, stable in ENTRIES
    ]
