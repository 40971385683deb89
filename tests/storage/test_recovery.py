"""Opening a damaged log: what is cut, what is rebuilt, what is refused."""

from __future__ import annotations

import pytest

from echoless.storage.file_system import CorruptLogError
from echoless.storage.log import Log
from tests.storage.log_workload import facts_of_entries, read_all
from tests.storage.look_up import found
from tests.storage.one_log import DIRECTORY, SMALL, OneLog


def contents(log: Log) -> tuple[bytes, object]:
    return read_all(log), facts_of_entries(log.producers.items())


def filled(count: int = 20) -> OneLog:
    one = OneLog()
    one.fill(count)
    return one


def test_a_killed_process_loses_nothing() -> None:
    """Without a power failure all that was written is there, after a scan of it."""
    one = filled()
    before = contents(one.log)
    log = one.open()
    assert contents(log) == before
    assert log.recovery.batches_scanned == 20
    assert log.recovery.bytes_scanned == log.size_bytes
    assert not log.recovery.is_notable


def test_only_what_lies_behind_the_recovery_point_is_scanned() -> None:
    """Segments below it are looked at from their last index entry on."""
    one = filled()
    one.log.flush()
    before = contents(one.log)
    log = one.open(recovery_point=one.log.recovery_point)
    assert contents(log) == before
    assert 0 < log.recovery.batches_scanned < 8
    assert log.recovery.batches_replayed == 0


def test_a_torn_tail_is_cut_and_counted() -> None:
    """The report says how many bytes were cut, and why; the log continues after the cut."""
    one = filled()
    name = one.files(".log")[-1]
    size = len(one.fs.read_bytes(f"{DIRECTORY}/{name}"))
    one.cut(name, size - 3)
    log = one.open()
    assert log.log_end_offset == 19
    assert log.recovery.is_notable
    batch_size = len(log.read(0, 1, 1))
    assert log.recovery.bytes_cut == batch_size - 3
    assert name in log.recovery.cut_reason
    one.fill(1, first_sequence=19)
    assert one.close_and_open().log_end_offset == 20


def test_damage_behind_the_recovery_point_takes_all_that_follows() -> None:
    """Segments after the damage are removed: a log has no holes."""
    one = filled()
    sizes = [len(one.fs.read_bytes(f"{DIRECTORY}/{name}")) for name in one.files(".log")]
    one.damage(one.files(".log")[1], 80)
    log = one.open()
    assert log.segment_count == 2
    assert log.recovery.segments_removed == len(sizes) - 2
    assert log.recovery.bytes_cut == sum(sizes[1:])
    assert (log.log_end_offset == len(log.producers.get(1).batches[-1:]) and 5) or 5  # type: ignore[union-attr]


def test_damage_before_the_recovery_point_is_refused() -> None:
    """The error names file and position; nothing on disk is changed."""
    one = filled()
    name = one.files(".log")[-1]
    one.damage(name, 80)
    before = {n: one.fs.read_bytes(f"{DIRECTORY}/{n}") for n in one.fs.list_directory(DIRECTORY)}
    with pytest.raises(CorruptLogError) as caught:
        one.open(recovery_point=20)
    assert caught.value.path == f"{DIRECTORY}/{name}"
    assert caught.value.position == 0
    assert "CRC" in str(caught.value)
    after = {n: one.fs.read_bytes(f"{DIRECTORY}/{n}") for n in one.fs.list_directory(DIRECTORY)}
    assert after == before


def test_a_log_that_ends_before_the_recovery_point_is_refused() -> None:
    """Records that were safely on disk and are gone are not passed over in silence."""
    one = filled()
    for name in one.files(".log")[-2:]:
        one.fs.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(CorruptLogError, match="records below 20"):
        one.open(recovery_point=20)
    for name in one.files(".log"):
        one.fs.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(CorruptLogError, match="no segment is left"):
        one.open(recovery_point=20)


@pytest.mark.parametrize("clean", [True, False])
def test_a_closed_segment_that_lost_its_end_is_refused(clean: bool) -> None:
    """Segments below the recovery point must meet, whatever the shutdown was like."""
    one = filled()
    one.log.close()
    name = one.files(".log")[0]
    one.cut(name, 100)
    with pytest.raises(CorruptLogError) as caught:
        one.open(recovery_point=20, clean=clean)
    assert caught.value.path.endswith(name)


def test_a_missing_segment_in_the_middle_is_refused() -> None:
    """A hole below the recovery point is damage as well."""
    one = filled()
    one.log.close()
    one.fs.remove(f"{DIRECTORY}/{one.files('.log')[1]}")
    with pytest.raises(CorruptLogError, match="end before offset"):
        one.open(recovery_point=20, clean=True)


def test_a_clean_restart_reads_no_batch() -> None:
    """Everything comes from the shutdown's snapshot and indexes."""
    one = filled()
    before = contents(one.log)
    entries = dict(one.log.producers.items())
    log = one.close_and_open()
    assert contents(log) == before
    assert dict(log.producers.items()) == entries
    assert (log.recovery.batches_scanned, log.recovery.batches_replayed) == (0, 0)
    assert log.recovery.snapshot_offset == 20


def test_lost_snapshots_are_made_up_for_by_the_log() -> None:
    """Unlike Kafka: after a clean shutdown without snapshot files every producer is still known."""
    one = filled()
    before = contents(one.log)
    one.log.close()
    for name in one.files(".snapshot"):
        one.fs.remove(f"{DIRECTORY}/{name}")
    log = one.open(recovery_point=20, clean=True)
    assert contents(log) == before
    assert log.recovery.batches_replayed == 20
    one.close_and_open()
    assert one.log.recovery.batches_replayed == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_snapshot_is_removed_and_an_older_one_taken(clean: bool) -> None:
    """Missing state is replayed; the damaged files are gone afterwards."""
    one = filled()
    before = contents(one.log)
    one.log.close()
    newest = one.files(".snapshot")[-2:]
    for name in newest:
        one.damage(name, 20)
    log = one.open(recovery_point=20, clean=clean)
    assert contents(log) == before
    assert log.recovery.snapshots_damaged == (2 if clean else 1)
    assert log.recovery.snapshot_offset == int(one.files(".snapshot")[-1 if clean else -2][:20])
    assert log.recovery.batches_replayed > 0


def test_a_snapshot_of_lost_batches_is_not_believed() -> None:
    """Were it kept, it would vouch for other batches once the log has grown past it again."""
    one = filled()
    one.log.close()
    assert one.files(".snapshot")[-1].startswith("00000000000000000020")
    for name in one.files(".log")[1:]:
        one.fs.remove(f"{DIRECTORY}/{name}")
    log = one.open()
    end = log.log_end_offset
    assert max(int(name[:20]) for name in one.files(".snapshot")) <= end < 20
    entry = log.producers.get(1)
    assert entry is not None
    assert entry.last_sequence == end - 1


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["remove", "cut", "flip", "empty"])
@pytest.mark.parametrize("clean", [True, False])
def test_indexes_are_rebuilt_where_they_are_lost_or_wrong(
    suffix: str, damage: str, clean: bool
) -> None:
    """An index is a convenience: reads, searches and contents do not depend on the files."""
    one = OneLog()
    for number in range(60):
        one.append(timestamp=1000 + 7 * number)
    one.log.close()
    expected = read_all_again(one, clean=clean)
    one.log.close()
    for name in one.files(suffix):
        path = f"{DIRECTORY}/{name}"
        if damage == "remove":
            one.fs.remove(path)
        elif damage == "cut":
            one.cut(name, max(len(one.fs.read_bytes(path)) - 1, 0))
        elif damage == "empty":
            one.cut(name, 0)
        elif one.fs.read_bytes(path):
            one.damage(name, 0)
    assert read_all_again(one, clean=clean) == expected


def read_all_again(one: OneLog, *, clean: bool) -> tuple[object, ...]:
    log = one.open(recovery_point=60, clean=clean)
    times = [found(log.offset_at_timestamp(1000 + ms)) for ms in range(0, 500, 13)]
    reads = [log.read(offset, 1, 60) for offset in range(60)]
    return contents(log), times, found(log.max_timestamp()), reads


def test_index_files_without_a_log_are_removed() -> None:
    """They are left by a removal that was cut short."""
    one = filled()
    one.log.close()
    one.fs.write_atomic(f"{DIRECTORY}/{99:020d}.index", b"")
    one.open(recovery_point=20, clean=True)
    assert f"{99:020d}.index" not in one.files(".index")


def test_a_log_start_behind_the_end_begins_anew_there_and_knows_its_producers() -> None:
    """The deleted records' checkpoint may outlive a tail that was never synced."""
    one = filled()
    log = one.open(log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert one.files(".log") == [f"{50:020d}.log"]
    entry = log.producers.get(1)
    assert entry is not None
    assert entry.last_sequence == 19
    assert one.open(log_start_offset=50).producers.get(1) is not None


def test_leader_epochs_are_rebuilt_from_scanned_batches() -> None:
    """The batches contain their epochs."""
    one = OneLog()
    for epoch in (0, 0, 4, 7):
        one.append(leader_epoch=epoch)
    entries = one.log.leader_epochs.entries
    one.fs.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    assert one.open().leader_epochs.entries == entries


def test_epochs_of_a_file_older_than_a_cut_give_way_to_the_batches() -> None:
    """Above the recovery point the file may tell of a leader whose records were cut off."""
    one = OneLog()
    one.fill(3)
    one.append(leader_epoch=7)
    one.log.flush()
    one.log.truncate_to(3)
    one.append(leader_epoch=5)
    assert one.open(recovery_point=3).leader_epochs.entries == ((0, 0), (5, 3))


def test_taking_up_an_epoch_syncs_nothing() -> None:
    """A stand-alone broker begins one for every partition at every start."""
    one = OneLog()
    one.fill(3)
    one.close_and_open()
    before = one.fs.operations
    one.log.leader_epochs.assign(5, 3)
    one.close_and_open()
    assert one.fs.operations == before


def test_a_window_survives_every_kind_of_restart() -> None:
    """The second newest batch is still a repeat after kill -9, clean restart and lost snapshots."""
    one = filled(5)
    for reopen in (one.open, one.close_and_open, one.open):
        log = reopen()
        entry = log.producers.get(1)
        assert entry is not None
        assert [batch.last_sequence for batch in entry.batches] == [0, 1, 2, 3, 4]
    assert SMALL.window == 5
