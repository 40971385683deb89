"""Segment files as rows: cut anywhere, cut short, and with every single bit flipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from echoless.pipeline.batches.batch_columns import ARROW_SCHEMA
from echoless.pipeline.batches.data_directory import find_partitions, find_segment_ranges
from echoless.pipeline.batches.segment_scan import SegmentScan
from echoless.protocol.record_batch import compute_crc, walk
from echoless.storage.log_config import LogConfig
from tests.pipeline.seeded_logs import sound_log
from tests.pipeline.written_logs import Sent, encode, write_logs

pytestmark = pytest.mark.slow

WHOLE = 1 << 40


def scan(data_dir: Path, split_bytes: int = WHOLE) -> list[dict[str, Any]]:
    """Every row of the directory, segment_range after segment_range."""
    rows: list[dict[str, Any]] = []
    for part in find_partitions(data_dir):
        for segment_range in find_segment_ranges("replica", part, split_bytes):
            with SegmentScan(segment_range) as opened:
                rows += [row for batch in opened.rows() for row in batch.to_pylist()]
    return rows


def one_segment(data_dir: Path, log: list[Sent]) -> Path:
    """Writes one log into one segment file."""
    write_logs(data_dir, {("orders", 0): log}, config=LogConfig(retention_ms=-1))
    return data_dir / "orders-0" / f"{0:020d}.log"


def test_rows_say_what_the_headers_say(tmp_path: Path):
    """Numpy reads a header as `echoless.protocol.record_batch` does, and adds whose it is and where."""
    log = [*sound_log("headers", batches=30), Sent(5, 3, 2**31 - 2, 4, 1234, 9)]
    segment = one_segment(tmp_path, log)
    data = segment.read_bytes()
    rows = scan(tmp_path)
    assert len(rows) == len(log)
    for row, (position, header) in zip(rows, walk(data), strict=True):
        assert row == {
            "replica": "replica",
            "topic": "orders",
            "partition": 0,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "leader_epoch": header.partition_leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "count": header.record_count,
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "attributes": header.attributes,
            "marker": None,
            "crc": header.crc,
            "crc_ok": True,
            "bytes": header.size,
            "file": f"orders-0/{segment.name}",
            "position": position,
            "damage": None,
        }
    assert rows[-1]["last_sequence"] == 1, "sequences wrap inside a batch"


def test_ranges_are_the_log_in_pieces(tmp_path: Path):
    """However small the pieces are, every batch is in exactly one of them."""
    write_logs(tmp_path, {("orders", 0): sound_log("pieces"), ("orders", 1): sound_log("more")})
    whole = scan(tmp_path)
    pieces = [len(scan(tmp_path, size)) for size in (1, 400, 1500)]
    assert pieces == [len(whole)] * 3
    (part, _) = find_partitions(tmp_path)
    assert len(find_segment_ranges("r", part, 1)) > len(find_segment_ranges("r", part, WHOLE)) > 1


def test_an_index_that_lies_is_not_believed(tmp_path: Path):
    """A segment is cut only where its index names the start of a batch."""
    segment = one_segment(tmp_path, sound_log("index"))
    index = segment.with_suffix(".index")
    data = bytearray(index.read_bytes())
    for at in range(7, len(data), 8):
        data[at] ^= 1
    index.write_bytes(data)
    (part,) = find_partitions(tmp_path)
    assert len(find_segment_ranges("r", part, 1)) == 1


@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_costs_its_own_batch_only(tmp_path: Path, bit: int):
    """Wherever it is, all other batches are read, and the batch with it is not taken for sound."""
    log = [Sent(7, 0, sequence, 1) for sequence in range(4)]
    segment = one_segment(tmp_path, log)
    data = segment.read_bytes()
    places = [(position, position + header.size) for position, header in walk(data)]
    sound = scan(tmp_path)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << bit
        segment.write_bytes(flipped)
        hit = next(i for i, (start, end) in enumerate(places) if start <= at < end)
        rows = scan(tmp_path)
        others = [row for row in rows if row["position"] != places[hit][0]]
        assert others == [*sound[:hit], *sound[hit + 1 :]], f"byte {at}"
        (found,) = [row for row in rows if row["position"] == places[hit][0]]
        is_covered = at - places[hit][0] >= 16
        if is_covered:
            assert not found["crc_ok"], f"byte {at}"
        assert found != sound[hit], f"byte {at}"


@pytest.mark.parametrize("split_bytes", [WHOLE, 300])
def test_a_file_cut_short_anywhere_ends_in_one_damaged_row(tmp_path: Path, split_bytes: int):
    """All complete batches, then what is left of the last one."""
    segment = one_segment(tmp_path, [Sent(7, 0, sequence, 1) for sequence in range(4)])
    data = segment.read_bytes()
    ends = [position + header.size for position, header in walk(data)]
    for size in range(1, len(data)):
        segment.write_bytes(data[:size])
        rows = scan(tmp_path, split_bytes)
        complete = sum(end <= size for end in ends)
        assert [row["crc_ok"] for row in rows[:complete]] == [True] * complete
        left = [(row["damage"], row["position"], row["bytes"]) for row in rows[complete:]]
        start = ends[complete - 1] if complete else 0
        if size == start:
            assert left == []
        else:
            assert left == [("the file ends inside the batch", start, size - start)]


def test_zeros_between_batches_are_one_damaged_row(tmp_path: Path):
    """Reading continues after bytes that are not a batch, however many."""
    log = [Sent(7, 0, sequence, 1) for sequence in range(4)]
    segment = one_segment(tmp_path, log)
    data = segment.read_bytes()
    (_, _), (position, _), *_ = walk(data)
    hole = 3 * 1024 * 1024
    segment.write_bytes(data[:position] + bytes(hole) + data[position:])
    rows = scan(tmp_path)
    assert [row["base_offset"] for row in rows] == [0, None, 1, 2, 3]
    assert (rows[1]["position"], rows[1]["bytes"]) == (position, hole)
    assert rows[1]["damage"] == "magic 0, not 2"


def test_a_batch_larger_than_a_block_is_read_whole(tmp_path: Path):
    """The block grows with it."""
    large = bytearray(encode(Sent(7, 0, 0, 1)))
    large += bytes(9 * 1024 * 1024)
    large[8:12] = (len(large) - 12).to_bytes(4, "big")
    large[17:21] = compute_crc(large).to_bytes(4, "big")
    segment = one_segment(tmp_path, [])
    segment.write_bytes(large + encode(Sent(7, 0, 1, 1), 1))
    assert [(row["bytes"], row["crc_ok"]) for row in scan(tmp_path)][:1] == [(len(large), True)]
    assert [row["base_offset"] for row in scan(tmp_path)] == [0, 1]


def test_rows_have_the_schema_that_spark_is_told(tmp_path: Path):
    """Spark refuses batches of another one."""
    segment = one_segment(tmp_path, [Sent(7, 0, 0, 1)])
    segment.write_bytes(segment.read_bytes() + b"torn")
    (part,) = find_partitions(tmp_path)
    (segment_range,) = find_segment_ranges("r", part, WHOLE)
    with SegmentScan(segment_range) as opened:
        batches = list(opened.rows())
    assert len(batches) == 2
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert {batch.schema for batch in batches} == {ARROW_SCHEMA}
