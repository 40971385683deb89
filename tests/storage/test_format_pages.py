"""The worked examples of `docs/formats/`, byte for byte.

Those of the segment and the data directory are written here; for the others the code is compared with
golden bytes beside its own tests, and here these are compared with the pages.
"""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.protocol.record_batch import MAGIC_POSITION, leader_stamp, read_header
from echoless.protocol.records import Record, build_batch
from echoless.storage.clock_checkpoint import ClockReading
from echoless.storage.log_config import LogConfig
from echoless.storage.log_directory import LogDirectory
from echoless.storage.producers.open_transactions import ClosedTransaction
from echoless.storage.segment import Segment
from echoless.storage.transaction_index import TransactionIndex
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.storage import test_checkpoints, test_leader_epochs
from tests.storage.producers import test_snapshot as test_producer_snapshot

FORMATS = Path(__file__).parents[2] / "docs" / "formats"
DATA_DIR = "/data"
BASE_OFFSET, LEADER_EPOCH = 100, 3
RECORDS = (
    Record(0, 1_700_000_000_000, None, b"a"),
    Record(0, 1_700_000_000_005, None, b"b"),
)
TOPIC_ID = uuid.UUID(bytes=bytes(range(16)))


def examples(page: str) -> list[bytes]:
    """The hex listings of a page; the first word that is not hex ends the bytes of a line."""
    blocks = (FORMATS / page).read_text(encoding="utf-8").split("\n```")[1::2]
    return [
        bytes.fromhex("".join(word for line in block.splitlines() for word in _hex_words(line)))
        for block in blocks
        if block.startswith("\n")
    ]


def _hex_words(line: str) -> Iterator[str]:
    return itertools.takewhile(re.compile(r"(?:[0-9a-f]{2})+").fullmatch, line.split())


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory(DATA_DIR)
    return fs


def test_segment_page_shows_what_is_written(fs: MemoryFileSystem) -> None:
    """Two batches give the documented log, offset index and time index; an abort gives an entry."""
    segment = Segment.create(fs, DATA_DIR, BASE_OFFSET, LogConfig(index_interval_bytes=0), 0)
    for offset, record in enumerate(RECORDS, BASE_OFFSET):
        batch = build_batch([record])
        header = read_header(batch)
        stamp = leader_stamp(header, offset, LEADER_EPOCH)
        rest = memoryview(batch)[MAGIC_POSITION:]
        segment.append((stamp, rest), header.batch_length, offset, header.max_timestamp)
    segment.indexes.seal()
    segment.indexes.save()
    written = [
        fs.read_bytes(f"{DATA_DIR}/00000000000000000100{suffix}")
        for suffix in (".log", ".index", ".timeindex")
    ]
    aborted = TransactionIndex(BASE_OFFSET)
    aborted.append(ClosedTransaction(4000, 100, 101, 102))
    assert [*written, aborted.encode()] == examples("segment.md")


def test_data_directory_page_shows_what_is_written(fs: MemoryFileSystem) -> None:
    """A new directory and a new partition have the documented metadata."""
    directory = LogDirectory.open(
        DATA_DIR,
        broker_id=1,
        fs=fs,
        now_ms=0,
        config_for=lambda _: LogConfig(),
        cluster_id="AAECAwQFBgcICQoLDA0ODw",
    )
    directory.create("orders", 0, TOPIC_ID, LogConfig(), now_ms=0)
    directory.save_clock(ClockReading(1_795_225_533_353, 1_795_398_333_353))
    written = [
        fs.read_bytes(f"{DATA_DIR}/{name}")
        for name in ("clock-checkpoint", "meta.properties", "orders-0/partition.metadata")
    ]
    assert written == examples("data-directory.md")


def test_clean_shutdown_marker_is_empty(fs: MemoryFileSystem) -> None:
    """The marker says all by being there."""
    directory = LogDirectory.open(
        DATA_DIR, broker_id=1, fs=fs, now_ms=0, config_for=lambda _: LogConfig()
    )
    directory.close({})
    assert fs.read_bytes(f"{DATA_DIR}/.clean-shutdown") == b""


@pytest.mark.parametrize(
    ("page", "golden"),
    [
        ("checkpoints.md", test_checkpoints.GOLDEN),
        ("leader-epoch-checkpoint.md", test_leader_epochs.GOLDEN),
        ("producer-snapshot.md", test_producer_snapshot.GOLDEN),
    ],
)
def test_pages_show_the_golden_bytes(page: str, golden: bytes) -> None:
    """The pages show the bytes with which the code is compared elsewhere."""
    assert examples(page) == [golden]
