"""The judgement of one log's bytes and offsets, on files that were damaged on purpose."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.protocol.record_batch import leader_stamp, read_header, walk
from echoless.storage.log_config import LogConfig
from tests.pipeline.audit.without_spark import judge_logs, judge_producers, read_batches
from tests.pipeline.written_logs import Sent, encode, write_logs

INDEXED = LogConfig(index_interval_bytes=100)
LOG = [Sent(7, 0, 2 * number, 2, leader_epoch=3) for number in range(6)]


def write(data_dir: Path) -> tuple[Path, list[bytes]]:
    """A log of one segment; returns the file and its batches."""
    write_logs(data_dir, {("orders", 0): LOG})
    (segment,) = (data_dir / "orders-0").glob("*.log")
    data = segment.read_bytes()
    return segment, [data[at : at + header.size] for at, header in walk(data)]


def judge(data_dir: Path, promised_offset: int = 2**62) -> list[Finding]:
    return list(judge_logs(read_batches(data_dir), lambda _: promised_offset))


def flip(batch: bytes, at: int) -> bytes:
    return batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]


def test_a_wrong_checksum_hides_its_offsets(tmp_path: Path):
    """The batches around it say which."""
    segment, batches = write(tmp_path)
    segment.write_bytes(b"".join([*batches[:2], flip(batches[2], 70), *batches[3:]]))
    (found,) = judge(tmp_path)
    assert (found.kind, found.base_offset, found.last_offset) == (FindingKind.CRC, 4, 5)
    assert found.position == len(batches[0]) + len(batches[1])


def test_bytes_that_are_no_batch_hide_what_stood_there(tmp_path: Path):
    """However many batches that were."""
    segment, batches = write(tmp_path)
    segment.write_bytes(b"".join([batches[0], b"\xff" * 500, *batches[4:]]))
    (found,) = judge(tmp_path)
    assert (found.kind, found.base_offset, found.last_offset) == (FindingKind.DAMAGE, 2, 7)
    assert found.records == 6


@pytest.mark.parametrize("field", [range(8), range(16, 61)])
def test_every_flipped_bit_of_a_header_is_a_problem(tmp_path: Path, field: range):
    """It is found in the offset too, which no checksum covers: the batches then overlap, or fall."""
    segment, batches = write(tmp_path)
    for at in field:
        segment.write_bytes(b"".join([*batches[:2], flip(batches[2], at), *batches[3:]]))
        assert Severity.PROBLEM in {f.severity for f in judge(tmp_path)}, f"byte {at}"


def test_a_missing_batch_leaves_a_gap_of_offsets(tmp_path: Path):
    """It is cut out of the file, cleanly, as compaction does: a note."""
    segment, batches = write(tmp_path)
    segment.write_bytes(b"".join([*batches[:2], *batches[3:]]))
    (found,) = judge(tmp_path)
    assert (found.kind, found.base_offset, found.last_offset) == (FindingKind.OFFSET_GAP, 4, 5)
    assert (found.severity, found.records, found.file) == (
        Severity.NOTE,
        2,
        f"orders-0/{segment.name}",
    )


@given(
    missing=st.lists(st.integers(0, 3), min_size=1, max_size=20), split_bytes=st.integers(1, 3000)
)
@settings(max_examples=12)
def test_holes_are_counted_wherever_the_log_is_cut(missing: list[int], split_bytes: int):
    """One note for each log, with the first hole and all that is missing."""
    sent = [Sent(7, 0, number, 1, missing=skip) for number, skip in enumerate([0, *missing])]
    with tempfile.TemporaryDirectory() as directory:
        write_logs(Path(directory), {("orders", 0): sent}, config=INDEXED)
        found = list(judge_logs(read_batches(Path(directory), split_bytes)))
    holes = [(number, skip) for number, skip in enumerate(missing) if skip]
    assert len(found) == bool(holes)
    if holes:
        number, skip = holes[0]
        assert (found[0].kind, found[0].severity) == (FindingKind.OFFSET_GAP, Severity.NOTE)
        assert (found[0].base_offset, found[0].last_offset) == (number + 1, number + skip)
        assert found[0].records == sum(missing)
        assert (f"in {len(holes)} places" in found[0].text) == (len(holes) > 1)


def test_a_missing_file_is_a_problem(tmp_path: Path):
    """Compaction keeps the last batch of each, so from file to file the offsets continue."""
    write_logs(tmp_path, {("orders", 0): LOG}, config=LogConfig(segment_bytes=250))
    first, second, third = sorted((tmp_path / "orders-0").glob("*.log"))[:3]
    second.unlink()
    (found,) = judge(tmp_path)
    assert (found.kind, found.severity) == (FindingKind.OFFSET_GAP, Severity.PROBLEM)
    assert (found.base_offset, found.last_offset) == (int(second.stem), int(third.stem) - 1)
    assert first.exists()


def test_what_retention_deletes_while_the_log_is_read_is_a_note(tmp_path: Path):
    """The first file was read, the second was gone: it is excused if the log then begins with the third, and no more."""
    write_logs(tmp_path, {("orders", 0): LOG}, config=LogConfig(segment_bytes=250))
    _, second, third = sorted((tmp_path / "orders-0").glob("*.log"))[:3]
    second.unlink()
    batches, start = read_batches(tmp_path), int(third.stem)
    for deleted_to, kind, severity in (
        (start, FindingKind.DELETED, Severity.NOTE),
        (start - 1, FindingKind.OFFSET_GAP, Severity.PROBLEM),
    ):
        (found,) = judge_logs(batches, is_compacted=False, deleted_to=deleted_to)
        assert (found.kind, found.severity) == (kind, severity)
        assert (found.base_offset, found.last_offset) == (int(second.stem), start - 1)


def test_files_that_kafka_has_cleaned_need_not_meet(tmp_path: Path):
    """The last batch of a file may be gone, and the next one be named by the first that a follower has copied."""
    write_logs(tmp_path, {("orders", 0): LOG}, config=LogConfig(segment_bytes=400))
    first = min((tmp_path / "orders-0").glob("*.log"))
    data = first.read_bytes()
    *_, (last_at, last) = walk(data)
    first.write_bytes(data[:last_at])
    for is_compacted, files_meet, severity in (
        (True, False, Severity.NOTE),
        (None, False, Severity.NOTE),
        (False, False, Severity.PROBLEM),
        (True, True, Severity.PROBLEM),
    ):
        batches = read_batches(tmp_path)
        (found,) = judge_logs(batches, is_compacted=is_compacted, files_meet=files_meet)
        assert (found.kind, found.severity) == (FindingKind.OFFSET_GAP, severity)
        assert (found.base_offset, found.last_offset) == (last.base_offset, last.last_offset)


def test_a_batch_that_stands_twice_repeats_its_offsets(tmp_path: Path):
    """The same bytes, as a broken copy of a file would have them."""
    segment, batches = write(tmp_path)
    segment.write_bytes(b"".join([*batches[:3], batches[2], *batches[3:]]))
    (found,) = judge(tmp_path)
    assert (found.kind, found.base_offset, found.last_offset) == (FindingKind.OFFSET_REPEAT, 4, 5)


def test_leader_epochs_never_decrease(tmp_path: Path):
    """They tell who led when the batch was appended."""
    segment, batches = write(tmp_path)
    older = leader_stamp(read_header(batches[2]), 4, 2) + batches[2][16:]
    segment.write_bytes(b"".join([*batches[:2], older, *batches[3:]]))
    (found,) = judge(tmp_path)
    assert (found.kind, found.base_offset) == (FindingKind.LEADER_EPOCH_REGRESSION, 4)


@pytest.mark.parametrize("size", [1, 60, 100])
def test_a_torn_tail_is_a_problem_only_where_it_was_promised(tmp_path: Path, size: int):
    """Above the recovery point a crash may cut a batch short; the next start cuts it off."""
    segment, batches = write(tmp_path)
    segment.write_bytes(b"".join(batches[:5]) + batches[5][:size])
    (note,) = judge(tmp_path, promised_offset=10)
    assert (note.kind, note.severity) == (FindingKind.TORN_TAIL, Severity.NOTE)
    (problem,) = judge(tmp_path, promised_offset=12)
    assert (problem.kind, problem.severity) == (FindingKind.DAMAGE, Severity.PROBLEM)


def test_the_producers_of_a_damaged_batch_are_not_believed(tmp_path: Path):
    """Its sequences are missing; that damage explains it is found by the whole audit."""
    segment, batches = write(tmp_path)
    segment.write_bytes(b"".join([*batches[:2], flip(batches[2], 50), *batches[3:]]))
    (gap,) = judge_producers(read_batches(tmp_path))
    assert (gap.kind, gap.after_offset, gap.base_offset) == (FindingKind.GAP, 3, 6)


def test_a_header_counts_no_more_records_than_offsets(tmp_path: Path):
    """Compaction makes fewer, down to none; nothing makes more."""
    segment, batches = write(tmp_path)
    for count in (0, 9, -1):
        whole = encode(LOG[2], 4)
        changed = _sealed(whole[:57] + count.to_bytes(4, "big", signed=True) + whole[61:])
        segment.write_bytes(b"".join([*batches[:2], changed, *batches[3:]]))
        found = [(one.kind, one.records) for one in judge(tmp_path)]
        assert found == ([(FindingKind.RECORD_COUNT, max(count, 0))] if count else [])


def _sealed(batch: bytes) -> bytes:
    from echoless.protocol.record_batch import compute_crc

    return batch[:17] + compute_crc(batch).to_bytes(4, "big") + batch[21:]


def test_a_file_may_begin_with_a_hole_that_compaction_left(tmp_path: Path):
    """Its name says which offset is the first that it may have; what is lost elsewhere is a problem."""
    write_logs(tmp_path, {("orders", 0): LOG}, config=LogConfig(segment_bytes=400))
    second = sorted((tmp_path / "orders-0").glob("*.log"))[1]
    data = second.read_bytes()
    first_size = read_header(data).size
    assert first_size < len(data), "the file has more than one batch"
    second.write_bytes(data[first_size:])
    batches = read_batches(tmp_path)
    (found,) = judge_logs(batches, is_compacted=True)
    assert (found.kind, found.severity) == (FindingKind.OFFSET_GAP, Severity.NOTE)
    assert found.base_offset == int(second.stem)
    (found,) = judge_logs(batches, is_compacted=False)
    assert (found.kind, found.severity) == (FindingKind.OFFSET_GAP, Severity.PROBLEM)


def test_a_log_begins_where_its_first_file_says(tmp_path: Path):
    """Its first batch is missed like any other: deletion takes whole files, and moves the start within one."""
    segment, batches = write(tmp_path)
    segment.write_bytes(b"".join(batches[1:]))
    for is_compacted, severity in ((False, Severity.PROBLEM), (True, Severity.NOTE)):
        (found,) = judge_logs(read_batches(tmp_path), is_compacted=is_compacted)
        assert (found.kind, found.severity) == (FindingKind.OFFSET_GAP, severity)
        assert (found.base_offset, found.last_offset) == (0, 1)
    renamed = segment.rename(segment.with_name(f"{2:020}.log"))
    assert judge(tmp_path) == []
    renamed.write_bytes(flip(batches[1], 0) + b"".join(batches[2:]))
    assert judge(tmp_path) != []


@pytest.mark.parametrize("at", range(8))
def test_every_bit_that_lowers_the_first_offset_is_a_problem(tmp_path: Path, at: int):
    """No batch before it tells: the name of the file does."""
    segment, batches = write(tmp_path)
    first = batches[0][:at] + bytes([batches[0][at] ^ 0x80]) + batches[0][at + 1 :]
    segment.write_bytes(first + b"".join(batches[1:]))
    assert Severity.PROBLEM in {f.severity for f in judge(tmp_path)}


def test_damage_at_the_beginning_hides_nothing_before_its_file(tmp_path: Path):
    """A log whose first files were deleted: what they had is not hidden."""
    segment, batches = write(tmp_path)
    segment.rename(segment.with_name(f"{4:020}.log")).write_bytes(
        flip(batches[2], 70) + b"".join(batches[3:])
    )
    (found,) = judge(tmp_path)
    assert (found.kind, found.base_offset, found.last_offset) == (FindingKind.CRC, 4, 5)
