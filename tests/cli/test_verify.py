"""`echoless verify` finds what is wrong with a data directory, and nothing else."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.protocol.record_batch import HEADER_SIZE, leader_stamp, read_header, seal_batch
from echoless.storage import paths
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.producers.snapshot import read_snapshot, write_snapshot
from echoless.storage.producers.state import ProducerStates
from tests.cli.command import Command
from tests.cli.data_directory import (
    append,
    file_of,
    fill,
    make_batch,
    now_ms,
    open_directory,
    open_log_directory,
)


def _contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def _write_log(directory: Path, *batches: bytes, steps: Sequence[int] = ()) -> None:
    """Replaces the first segment by `batches`, with nothing derived.

    Their offsets are consecutive, or further apart (or closer) by `steps`.
    """
    for file in directory.iterdir():
        if paths.parse_offset_file(file.name) is not None:
            file.unlink()
    stamped, offset = b"", 0
    for index, batch in enumerate(batches):
        offset += steps[index] if index < len(steps) else 0
        header = read_header(batch)
        stamped += leader_stamp(header, offset, 0) + batch[16:]
        offset += header.record_count
    file_of(directory, 0, paths.LOG).write_bytes(stamped)
    for name in (paths.RECOVERY_POINT_CHECKPOINT, paths.HIGH_WATERMARK_CHECKPOINT):
        (directory.parent / name).write_text("0\n0\n")


def test_what_a_broker_leaves_has_no_problem(tmp_path: Path, echoless: Command) -> None:
    """A cleanly closed directory of several segments and producers is found right."""
    directory = fill(tmp_path)
    ran = echoless("verify", tmp_path, "--json")
    assert (ran.code, ran.json["problems"], ran.json["notes"]) == (0, [], [])
    (summary,) = ran.json["partitions"]
    assert (summary["batches"], summary["records"], summary["producers"]) == (8, 16, 2)
    assert summary["segments"] == len(list(directory.glob("*.log"))) > 1
    assert summary["log_end_offset"] == 16


def test_nothing_is_changed(tmp_path: Path, echoless: Command) -> None:
    """Verifying reads only, also where it finds damage."""
    directory = fill(tmp_path)
    segment = file_of(directory, 0, paths.LOG)
    segment.write_bytes(segment.read_bytes()[:-5])
    before = _contents(tmp_path)
    assert echoless("verify", tmp_path).code == 1
    assert _contents(tmp_path) == before


def test_flipped_bit_is_a_problem_at_its_batch(tmp_path: Path, echoless: Command) -> None:
    """A record that changed on disk is named with file and position; the rest is read on."""
    segment = file_of(fill(tmp_path), 0, paths.LOG)
    data = bytearray(segment.read_bytes())
    second = read_header(data).size
    data[second + 70] ^= 1
    segment.write_bytes(data)
    ran = echoless("verify", tmp_path, "--json")
    assert (ran.code, ran.json["problems"]) == (
        1,
        [f"{segment} at {second}: the CRC does not match"],
    )
    assert ran.json["partitions"][0]["batches"] == 7


def test_missing_segment_is_a_gap(tmp_path: Path, echoless: Command) -> None:
    """Offsets must follow each other from file to file."""
    directory = fill(tmp_path)
    segments = sorted(directory.glob("*.log"))
    segments[1].unlink()
    ran = echoless("verify", tmp_path, "--json")
    assert ran.code == 1
    assert f"{segments[2]}: begins at" in ran.json["problems"][0]


def test_a_hole_between_batches_is_a_note(tmp_path: Path, echoless: Command) -> None:
    """As compaction leaves it, with what a producer sent there; a repeat after it is still one."""
    directory = fill(tmp_path)
    sent = make_batch(7, 0), make_batch(7, 10), make_batch(7, 12), make_batch(8, 0)
    _write_log(directory, *sent, steps=(0, 8, 0, 3))
    ran = echoless("verify", tmp_path, "--json")
    assert (ran.code, ran.json["problems"]) == (0, [])
    figures = "lacks 11 offsets between its batches, in 2 places, the first from 2 to 9"
    assert ran.json["notes"] == [
        f"{directory}: {figures}: compaction removed them, or they are lost"
    ]
    assert ran.json["partitions"][0]["log_end_offset"] == 19
    _write_log(directory, *sent, make_batch(7, 12), make_batch(7, 20), steps=(0, 8, 0, 3))
    repeat, gap = echoless("verify", tmp_path, "--json").json["problems"]
    assert "sequences 12 to 13: stored twice" in repeat
    assert "sequence 20 does not follow" in gap


@pytest.mark.parametrize("step", [-1, -4])
def test_offsets_that_overlap_or_fall_are_a_problem(
    tmp_path: Path, echoless: Command, step: int
) -> None:
    """The batch is named with file, position and where the batches before it end."""
    directory = fill(tmp_path)
    _write_log(directory, make_batch(7, 0), make_batch(7, 2), make_batch(8, 0), steps=(0, 0, step))
    (problem,) = echoless("verify", tmp_path, "--json").json["problems"]
    size = len(make_batch(7, 0))
    reason = f"base offset {4 + step}, though the batches before end at 4"
    assert problem == f"{file_of(directory, 0, paths.LOG)} at {2 * size}: {reason}"


def test_torn_tail_after_a_crash_is_a_note(tmp_path: Path, echoless: Command) -> None:
    """Bytes that the next start cuts off were never promised, so they are mentioned and no more."""
    directory = fill(tmp_path, batches=2)
    _crash(tmp_path, recovery_point=2)
    segment = file_of(directory, 0, paths.LOG)
    segment.write_bytes(segment.read_bytes()[:-1])
    ran = echoless("verify", tmp_path, "--json")
    assert (ran.code, ran.json["problems"]) == (0, [])
    assert "a write was cut short" in ran.json["notes"][0]
    assert ran.json["partitions"][0]["log_end_offset"] == 2


def test_log_that_is_about_to_begin_anew_is_a_note(tmp_path: Path, echoless: Command) -> None:
    """A replica's log that was being replaced promises nothing; a damaged snapshot stops a start."""
    directory = fill(tmp_path, batches=2)
    _crash(tmp_path, recovery_point=2)
    file_of(directory, 0, paths.LOG).unlink()
    replacement = directory / paths.REPLACEMENT
    write_snapshot(OsFileSystem(), str(replacement), 50, ProducerStates())
    ran = echoless("verify", tmp_path, "--json")
    assert (ran.code, ran.json["problems"]) == (0, [])
    assert "a new log at offset 50" in ran.json["notes"][0]
    replacement.write_bytes(replacement.read_bytes()[:-1])
    ran = echoless("verify", tmp_path, "--json")
    assert ran.code == 1
    assert paths.REPLACEMENT in ran.json["problems"][0]


def test_torn_tail_before_the_recovery_point_is_a_problem(
    tmp_path: Path, echoless: Command
) -> None:
    """Records that were safely on disk and are cut short are lost."""
    directory = fill(tmp_path, batches=2)
    _crash(tmp_path, recovery_point=4)
    segment = file_of(directory, 0, paths.LOG)
    segment.write_bytes(segment.read_bytes()[:-1])
    problems = echoless("verify", tmp_path, "--json").json["problems"]
    assert any("lacks 1 bytes of the batch" in problem for problem in problems)
    assert any("the log ends at 2, before its recovery point 4" in p for p in problems)


def _crash(data_dir: Path, recovery_point: int) -> None:
    """Makes the directory look as after kill -9 at this recovery point."""
    (data_dir / paths.CLEAN_SHUTDOWN).unlink()
    for name, offset in (
        (paths.RECOVERY_POINT_CHECKPOINT, recovery_point),
        (paths.HIGH_WATERMARK_CHECKPOINT, 0),
    ):
        (data_dir / name).write_text(f"0\n1\norders 0 {offset}\n")


def test_record_stored_twice_is_a_problem(tmp_path: Path, echoless: Command) -> None:
    """A batch whose sequences are in the log already is exactly what must not happen."""
    directory = fill(tmp_path)
    _write_log(directory, make_batch(7, 0), make_batch(7, 2), make_batch(7, 0))
    ran = echoless("verify", tmp_path, "--json")
    assert ran.code == 1
    (problem,) = ran.json["problems"]
    assert "producer 7 epoch 0 sequences 0 to 1: stored twice" in problem
    assert problem.endswith("the same sequences are at offset 0")


def test_gap_in_the_sequences_is_a_problem(tmp_path: Path, echoless: Command) -> None:
    """A missing sequence is a lost record."""
    directory = fill(tmp_path)
    _write_log(directory, make_batch(7, 0), make_batch(7, 4))
    (problem,) = echoless("verify", tmp_path, "--json").json["problems"]
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER: sequence 4 does not follow" in problem


def test_more_records_than_offsets_are_a_problem_and_fewer_a_note(
    tmp_path: Path, echoless: Command
) -> None:
    """Compaction removes records from batches; nothing adds any."""
    batch = make_batch(7, 0)
    for number, (count, place) in enumerate([(3, "problems"), (1, "notes")]):
        directory = fill(tmp_path / str(number))
        header = read_header(batch)._replace(record_count=count)
        _write_log(directory, seal_batch(header, batch[HEADER_SIZE:]))
        found = echoless("verify", directory.parent, "--json").json[place]
        text = "3 records for 2 offsets" if count == 3 else "lacks 1 records in 1 batches"
        assert any(text in one for one in found), found


def test_forgotten_producer_may_begin_again(tmp_path: Path, echoless: Command) -> None:
    """After the expiry the broker knew nothing of the producer, so sequence 0 was right."""
    directory = fill(tmp_path)
    later = make_batch(7, 0, timestamp=1000 + 60_000)
    _write_log(directory, make_batch(7, 0), later)
    setting = "producer_id_expiration_ms=60s"
    assert echoless("verify", tmp_path, "--set", setting).code == 0
    assert echoless("verify", tmp_path).code == 1


def test_snapshot_that_differs_from_the_log_is_a_problem(tmp_path: Path, echoless: Command) -> None:
    """A snapshot must hold what replaying the log gives."""
    path = str(file_of(fill(tmp_path), 16, paths.SNAPSHOT))
    states = _loaded(path)
    entry = states.get(7)
    assert entry is not None
    last = entry.batches[-1]
    states.put(7, ProducerEntry(0, 0, now_ms(), (*entry.batches[:-1], last._replace(crc=1))))
    write_snapshot(OsFileSystem(), path, 16, states)
    ran = echoless("verify", tmp_path, "--json")
    assert ran.code == 1
    assert ran.json["problems"][0].startswith(f"{path}: producer 7 is epoch 0 with sequences")


def test_snapshot_with_a_producer_too_many_or_too_few_is_a_problem(
    tmp_path: Path, echoless: Command
) -> None:
    """Producers that never wrote, or that wrote lately and are missing, are both reported."""
    path = str(file_of(fill(tmp_path), 16, paths.SNAPSHOT))
    states = ProducerStates()
    kept = _loaded(path).get(7)
    assert kept is not None
    states.put(7, kept)
    states.put(99, ProducerEntry(0, 0, 1, (BatchMetadata(1, 1, 1, 1, 1),)))
    write_snapshot(OsFileSystem(), path, 16, states)
    problems = echoless("verify", tmp_path, "--json").json["problems"]
    assert problems == [f"{path}: knows producer 99, which never wrote to this log"]
    states.clear()
    states.put(7, kept)
    write_snapshot(OsFileSystem(), path, 16, states)
    (problem,) = echoless("verify", tmp_path, "--json").json["problems"]
    assert problem.startswith(f"{path}: lacks producer 8")


def _loaded(path: str) -> ProducerStates:
    states = ProducerStates()
    read_snapshot(OsFileSystem(), path).load_into(states)
    return states


def test_log_whose_beginning_was_deleted_is_checked_from_its_snapshot(
    tmp_path: Path, echoless: Command
) -> None:
    """If old segments are gone the oldest snapshot has what the producers had sent."""
    fill(tmp_path)
    with open_log_directory(tmp_path) as directory:
        log = directory.logs["orders", 0]
        log.advance_log_start(8)
        directory.checkpoint({})
        assert log.delete_old_segments(now_ms()) > 0
        assert log.log_start_offset == 8
        append(log, 7, 8)
    ran = echoless("verify", tmp_path, "--json")
    assert (ran.code, ran.json["problems"]) == (0, [])
    assert ran.json["partitions"][0]["log_start_offset"] == 8


def test_a_log_without_its_first_segment_is_a_problem(tmp_path: Path, echoless: Command) -> None:
    """The start refuses it, too."""
    directory = fill(tmp_path)
    first, second, *_ = sorted(directory.glob("*.log"))
    first.unlink()
    problems = echoless("verify", tmp_path, "--json").json["problems"]
    assert f"{second}: the segments before it are missing: the log began at 0" in problems


@pytest.mark.parametrize(
    ("suffix", "entry"),
    [(paths.OFFSET_INDEX, struct.pack(">ii", 3, 1)), (paths.TIME_INDEX, struct.pack(">qi", 5, 3))],
)
def test_index_that_points_elsewhere_is_a_problem(
    tmp_path: Path, echoless: Command, suffix: str, entry: bytes
) -> None:
    """Every index entry must point to the position of a batch."""
    path = file_of(fill(tmp_path), 0, suffix)
    path.write_bytes(entry + path.read_bytes()[len(entry) :])
    (problem,) = echoless("verify", tmp_path, "--json").json["problems"]
    assert problem.startswith(f"{path}: ")
    assert "is wrong" in problem


def test_damaged_small_files_are_problems(tmp_path: Path, echoless: Command) -> None:
    """Snapshots, epochs, checkpoints and metadata that cannot be read are all reported."""
    directory = fill(tmp_path)
    damaged = [
        file_of(directory, 16, paths.SNAPSHOT),
        directory / paths.LEADER_EPOCH_CHECKPOINT,
        directory / paths.PARTITION_METADATA,
        tmp_path / paths.HIGH_WATERMARK_CHECKPOINT,
    ]
    for path in damaged:
        path.write_bytes(b"nonsense")
    problems = echoless("verify", tmp_path, "--json").json["problems"]
    for path in damaged:
        assert any(problem.startswith(str(path)) for problem in problems), path


def test_a_missing_log_is_a_problem_and_a_stray_a_note(tmp_path: Path, echoless: Command) -> None:
    """A log that was set aside is named, and does not count as lost."""
    directory = fill(tmp_path)
    assert echoless("strays", "set-aside", tmp_path, "orders-0").code == 0
    ran = echoless("verify", tmp_path, "--json")
    (note,) = ran.json["notes"]
    assert (ran.code, ran.json["problems"]) == (0, [])
    assert note.endswith("is set aside: by command")
    (stray,) = tmp_path.glob("*-stray")
    assert echoless("strays", "restore", tmp_path, stray.name).code == 0
    shutil.rmtree(directory)
    ran = echoless("verify", tmp_path, "--json")
    assert ran.code == 1
    (problem,) = ran.json["problems"]
    assert problem == f"{directory}: is missing, though records below 16 were on disk"


def test_leader_epochs_are_compared_with_the_batches(tmp_path: Path, echoless: Command) -> None:
    """The checkpoint must give each offset the epoch that its batch carries."""
    directory = fill(tmp_path)
    (directory / paths.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n3 0\n")
    (problem,) = echoless("verify", tmp_path, "--json").json["problems"]
    assert problem.endswith("gives offset 0 leader epoch 3, its batch says 0")


def test_epochs_above_the_recovery_point_are_not_in_the_file_yet(
    tmp_path: Path, echoless: Command
) -> None:
    """A killed broker's file may lack them; the next start reads them from the batches."""
    directory = fill(tmp_path)
    (directory / paths.LEADER_EPOCH_CHECKPOINT).unlink()
    (tmp_path / paths.CLEAN_SHUTDOWN).unlink()
    (tmp_path / paths.RECOVERY_POINT_CHECKPOINT).unlink()
    assert echoless("verify", tmp_path, "--json").json["problems"] == []


def test_directory_in_use_is_refused(tmp_path: Path, echoless: Command) -> None:
    """While a broker writes, what is read would be wrong by the time it is judged."""
    with open_directory(tmp_path) as log:
        append(log, 7, 0)
        ran = echoless("verify", tmp_path)
    assert ran.code == 1
    assert (
        ran.err == f"echoless: {tmp_path} is in use by broker 1, process {os.getpid()}; "
        f"stop it first\n"
    )


def test_other_directory_is_refused(tmp_path: Path, echoless: Command) -> None:
    """A directory without a broker's data is a mistake of the user."""
    ran = echoless("verify", tmp_path)
    assert ran.code == 1
    assert ran.err == f"echoless: {tmp_path} is not a data directory: it has no meta.properties\n"
