"""The data directory: one owner, what is known between runs, and partitions that come and go."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

import pytest

from echoless.protocol.record_batch import read_header
from echoless.storage.disk_work import Work, one_by_one
from echoless.storage.file_system import CorruptLogError, LockHeldError, StorageError
from echoless.storage.log_config import LogConfig
from echoless.storage.log_directory import LogDirectory
from echoless.storage.meta_properties import ForeignDirectoryError
from tests.fakes.memory_file_system import MemoryFileSystem, PowerFailure, keep_all, keep_none
from tests.storage.log_workload import DATA_DIR, make_batch, new_file_system

TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
CONFIG = LogConfig()


def open_directory(fs: MemoryFileSystem, broker_id: int = 1) -> LogDirectory:
    return LogDirectory.open(
        DATA_DIR, broker_id=broker_id, fs=fs, now_ms=1000, config_for=lambda _topic: CONFIG
    )


def create(directory: LogDirectory, topic: str = "orders", partition: int = 0) -> None:
    directory.create(topic, partition, TOPIC_ID, CONFIG, now_ms=1000)


def append(directory: LogDirectory, topic: str = "orders", count: int = 1) -> None:
    for _ in range(count):
        batch = make_batch()
        directory.logs[topic, 0].append(batch, read_header(batch), 0, 1000)


def test_a_second_broker_is_refused_and_told_who_is_there() -> None:
    """The lock is held as long as the first broker runs."""
    fs = new_file_system()
    directory = open_directory(fs)
    with pytest.raises(LockHeldError, match="broker 1"):
        open_directory(fs, broker_id=2)
    directory.close({})
    open_directory(fs)


def test_the_directory_keeps_its_cluster_and_its_broker() -> None:
    """The cluster id is chosen once; a broker of another id is refused and leaves no lock."""
    fs = new_file_system()
    directory = open_directory(fs)
    cluster_id = directory.cluster_id
    assert len(cluster_id) == 22
    directory.close({})
    with pytest.raises(ForeignDirectoryError, match="belongs to broker 1, not 2"):
        open_directory(fs, broker_id=2)
    assert open_directory(fs).cluster_id == cluster_id
    assert b"broker.id=1\n" in fs.read_bytes(f"{DATA_DIR}/meta.properties")


def test_a_power_failure_leaves_a_new_directory_where_it_is() -> None:
    """Every parent created for it is synced: syncing inside is useless otherwise."""
    fs = MemoryFileSystem()
    path = "/var/lib/echoless/data"
    directory = LogDirectory.open(
        path, broker_id=1, fs=fs, now_ms=1000, config_for=lambda _topic: CONFIG
    )
    after = fs.after_power_loss(keep_none, 0)
    assert directory.cluster_id.encode() in after.read_bytes(f"{path}/meta.properties")


def test_partitions_are_found_again() -> None:
    """Topic ids, records, high watermarks and log starts survive a clean restart."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    create(directory, "a-b.c", 11)
    append(directory, count=3)
    directory.logs["orders", 0].advance_log_start(1)
    directory.close({("orders", 0): 2})
    again = open_directory(fs)
    assert again.was_clean
    assert again.logs.keys() == {("orders", 0), ("a-b.c", 11)}
    assert again.topic_ids["orders", 0] == TOPIC_ID
    assert again.high_watermarks == {("orders", 0): 2}
    log = again.logs["orders", 0]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (1, 3, 3)
    metadata = fs.read_bytes(f"{DATA_DIR}/orders-0/partition.metadata")
    assert metadata == b"version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w\ncrc32c: 7f033e6b\n"


def test_the_clean_marker_counts_once() -> None:
    """It is removed before the logs are opened, so that a crash afterwards is noticed."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    directory.close({})
    assert fs.exists(f"{DATA_DIR}/.clean-shutdown")
    assert open_directory(fs).was_clean
    assert not open_directory(fs.after_power_loss(keep_none)).was_clean


def test_a_directory_whose_logs_were_never_opened_stays_as_it_was() -> None:
    """A start that ends in between knows nothing of the logs: their files must survive it."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    append(directory, count=3)
    directory.close({("orders", 0): 2})
    LogDirectory.claim(DATA_DIR, broker_id=1, fs=fs).close({})
    found = open_directory(fs)
    assert found.was_clean
    assert found.high_watermarks == {("orders", 0): 2}
    assert found.logs["orders", 0].recovery_point == 3
    killed = fs.after_power_loss(keep_all)
    LogDirectory.claim(DATA_DIR, broker_id=1, fs=killed).close({})
    assert not open_directory(killed).was_clean, "a crash was forgotten"


def test_the_tail_is_safe_unless_the_power_failed() -> None:
    """A clean shutdown and kill -9 lose nothing; after a power failure that is unknown."""
    fs = new_file_system()
    directory = open_directory(fs)
    assert not directory.tail_is_safe  # nothing is known of a directory without a past
    directory.vouch_for_tail()
    killed = fs.after_power_loss(keep_all)
    directory = open_directory(killed)
    assert directory.tail_is_safe
    assert not directory.was_clean
    assert not open_directory(killed.after_power_loss(keep_none)).tail_is_safe
    directory.close({})
    assert open_directory(killed.after_power_loss(keep_none)).tail_is_safe


def test_a_lost_tail_stays_lost_until_somebody_vouches_again() -> None:
    """A start that dies before it notified the cluster must not make the next one trust the tail."""
    fs = new_file_system()
    open_directory(fs).vouch_for_tail()
    fs = fs.after_power_loss(keep_none)
    for _ in range(3):
        directory = open_directory(fs)
        assert not directory.tail_is_safe
        fs = fs.after_power_loss(keep_all)
    directory = open_directory(fs)
    directory.vouch_for_tail()
    assert open_directory(fs.after_power_loss(keep_all)).tail_is_safe


def test_a_start_that_fails_and_closes_cleanly_does_not_vouch() -> None:
    """After a power failure the coordinator was away.

    The logs were closed, but no one was notified.
    """
    fs = new_file_system()
    open_directory(fs).vouch_for_tail()
    fs = fs.after_power_loss(keep_none)
    for _ in range(3):
        directory = open_directory(fs)
        assert not directory.tail_is_safe
        directory.close({})
    directory = open_directory(fs)
    assert directory.was_clean
    directory.vouch_for_tail()
    directory.close({})
    assert open_directory(fs).tail_is_safe


def test_a_clean_shutdown_before_the_machine_restarts_does_not_vouch_for_later() -> None:
    """The marker speaks of one shutdown; after a kill in another boot nothing speaks any more."""
    fs = new_file_system()
    directory = open_directory(fs)
    directory.vouch_for_tail()
    directory.close({})
    fs = fs.after_power_loss(keep_none)
    assert open_directory(fs).tail_is_safe
    assert not open_directory(fs.after_power_loss(keep_all)).tail_is_safe


def test_a_failed_disk_is_not_vouched_for() -> None:
    """Its unsynced data may be gone, whatever the boot id says."""
    fs = new_file_system()
    directory = open_directory(fs)
    directory.vouch_for_tail()
    directory.fail(StorageError("/x", "broken"))
    directory.vouch_for_tail()
    assert not open_directory(fs.after_power_loss(keep_all)).tail_is_safe


def test_without_boot_ids_only_a_clean_shutdown_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty boot id equals nothing, itself included."""
    monkeypatch.setattr(MemoryFileSystem, "boot_id", lambda _fs: "")
    fs = new_file_system()
    directory = open_directory(fs)
    directory.vouch_for_tail()
    assert not open_directory(fs.after_power_loss(keep_all)).tail_is_safe
    directory.close({})
    assert open_directory(fs).tail_is_safe


def test_high_watermarks_stay_inside_their_logs() -> None:
    """A checkpoint may have outlived the tail that it speaks of, or be older than the log start."""
    fs = new_file_system()
    directory = open_directory(fs)
    for topic in ("lost", "short", "started", "kept"):
        create(directory, topic)
        append(directory, topic, count=5)
        directory.logs[topic, 0].flush()
    append(directory, "short", count=3)
    directory.logs["started", 0].advance_log_start(4)
    directory.checkpoint({("short", 0): 8, ("started", 0): 2, ("kept", 0): 3})
    found = open_directory(fs.after_power_loss(keep_none))
    assert found.high_watermarks == {("short", 0): 5, ("started", 0): 4, ("kept", 0): 3}


def test_no_log_start_on_disk_lies_behind_what_a_power_failure_leaves() -> None:
    """Beginning the log there would forget the producers of all that is lost below it."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    log = directory.logs["orders", 0]
    append(directory, count=2)
    log.flush()
    append(directory, count=2)
    log.advance_log_start(4)
    directory.checkpoint({("orders", 0): 4})
    log = open_directory(fs.after_power_loss(keep_none, 1)).logs["orders", 0]
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)


def test_after_a_disk_failure_the_shutdown_is_not_clean() -> None:
    """The first failure is kept, and the lock is released all the same."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    first = StorageError("/x", "broken")
    directory.fail(first)
    directory.fail(StorageError("/y", "broken too"))
    assert directory.failure is first
    directory.close({})
    assert not open_directory(fs).was_clean


def test_a_deleted_partition_that_comes_back_inherits_nothing() -> None:
    """Neither records nor checkpoints of the first life reach the second."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    append(directory, count=5)
    directory.logs["orders", 0].flush()
    directory.checkpoint({("orders", 0): 5})
    directory.delete("orders", 0)
    create(directory)
    log = open_directory(fs.after_power_loss(keep_all)).logs["orders", 0]
    assert (log.log_end_offset, log.recovery_point) == (0, 0)
    assert open_directory(fs.after_power_loss(keep_none)).logs == {}


def test_a_log_of_another_topic_id_gives_way() -> None:
    """A topic that was deleted and created again while this broker was away begins empty."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    append(directory, count=5)
    directory.close({("orders", 0): 5})
    directory = open_directory(fs)
    other_id = uuid.UUID(int=8)
    assert directory.topic_ids["orders", 0] == TOPIC_ID != other_id
    directory.delete("orders", 0)
    directory.create("orders", 0, other_id, CONFIG, now_ms=1000)
    found = open_directory(fs.after_power_loss(keep_all))
    assert found.topic_ids["orders", 0] == other_id
    assert found.logs["orders", 0].log_end_offset == 0
    assert found.high_watermarks == {}
    assert open_directory(fs.after_power_loss(keep_none)).logs == {}


def test_a_partition_can_be_deleted_again_and_again() -> None:
    """Leftovers of an earlier deletion of the same replica are not in the way."""
    fs = new_file_system()
    directory = open_directory(fs)
    for _ in range(2):
        create(directory)
        fs.fail_at = fs.operations + 2  # the removal of the renamed directory
        with pytest.raises(StorageError):
            directory.delete("orders", 0)
    create(directory)
    directory.delete("orders", 0)
    assert not any(name.endswith("-delete") for name in fs.list_directory(DATA_DIR))


def test_many_partitions_are_deleted_with_one_sync_of_their_directory() -> None:
    """Each checkpoint is written once, too, however many they are."""
    counts = []
    for partitions in (1, 50):
        fs = new_file_system()
        directory = open_directory(fs)
        for partition in range(partitions):
            create(directory, "orders", partition)
        directory.checkpoint({("orders", partition): 0 for partition in range(partitions)})
        before = fs.operations
        pending = directory.forget([("orders", partition) for partition in range(partitions)])
        pending.run()
        counts.append(fs.operations - before - partitions)  # a rename each
        assert directory.logs == {}
        while pending.remove_some():
            pass
        assert not any(name.startswith("orders") for name in fs.list_directory(DATA_DIR))
    assert counts[0] == counts[1]


def test_a_close_says_how_many_snapshots_it_removes(caplog: pytest.LogCaptureFixture) -> None:
    """The one of the shutdown before, in each log that was appended to since."""
    caplog.set_level(logging.INFO)
    fs = new_file_system()
    for appended in (["orders", "views"], ["orders", "views"], ["orders"], []):
        directory = open_directory(fs)
        for topic in appended:
            if (topic, 0) not in directory.logs:
                create(directory, topic)
            append(directory, topic)
        directory.close({})
    lines = [record.getMessage() for record in caplog.records if "snapshots" in record.getMessage()]
    assert lines == [
        f"removed {count} producer snapshots that newer ones have replaced" for count in (2, 1)
    ]
    for topic in ("orders", "views"):
        names = fs.list_directory(f"{DATA_DIR}/{topic}-0")
        assert sum(name.endswith(".snapshot") for name in names) == 1


def test_logs_that_were_not_closed_are_synced_together() -> None:
    """One after the other, the syncs were most of a start after a kill; appends still wait for them."""
    fs = new_file_system()
    directory = open_directory(fs)
    for partition in range(5):
        create(directory, "orders", partition)
        log = directory.logs["orders", partition]
        for _ in range(2):  # a flushed batch, and one above the recovery point
            batch = make_batch()
            log.append(batch, read_header(batch), 0, 1000)
            if not log.recovery_point:
                flush = log.start_flush()
                flush.run()
                log.finish_flush(flush)
    directory.checkpoint({})
    killed = fs.after_power_loss(keep_all)
    together: list[int] = []

    def run_all(work: Work) -> None:
        together.append(len(work))
        before = killed.operations
        one_by_one(work)
        assert killed.operations == before + 2 * len(work)

    directory = LogDirectory.claim(DATA_DIR, broker_id=1, fs=killed)
    for _ in directory.opening(1000, lambda _topic: CONFIG, run_all=run_all):
        pass
    assert together == [5]
    after = open_directory(killed.after_power_loss(keep_none))
    assert {log.log_end_offset for log in after.logs.values()} == {2}


def test_creation_waits_for_no_disk_and_the_first_flush_does() -> None:
    """An empty partition is made again where it is lost; one that was flushed is not lost."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    create(directory, "views")
    assert open_directory(fs.after_power_loss(keep_none)).logs == {}
    append(directory)
    directory.logs["orders", 0].flush()
    found = open_directory(fs.after_power_loss(keep_none))
    assert found.logs["orders", 0].log_end_offset == 1
    assert found.topic_ids["orders", 0] == TOPIC_ID


def test_a_directory_that_was_just_made_is_not_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is in it; one that a failed attempt has left is another matter."""
    fs = new_file_system()
    directory = open_directory(fs)
    fs.make_directory(f"{DATA_DIR}/views-0")
    fs.open(f"{DATA_DIR}/views-0/{0:020d}.index", create=True)
    looked: list[str] = []
    for name in ("list_directory", "remove"):
        real = getattr(fs, name)
        monkeypatch.setattr(fs, name, lambda path, real=real: looked.append(path) or real(path))
    create(directory)
    assert looked == []
    create(directory, "views")
    assert looked
    assert fs.list_directory(f"{DATA_DIR}/views-0") == [f"{0:020d}.log", "partition.metadata"]


def test_the_first_flush_after_a_kill_makes_the_partition_durable_too() -> None:
    """Whether an earlier process did so is unknown while the recovery point is 0."""
    fs = new_file_system()
    create(open_directory(fs))
    fs = fs.after_power_loss(keep_all)
    directory = open_directory(fs)
    append(directory)
    directory.logs["orders", 0].flush()
    found = open_directory(fs.after_power_loss(keep_none))
    assert found.logs["orders", 0].log_end_offset == 1


def test_one_sync_makes_the_names_of_many_new_partitions_durable() -> None:
    """The data directory is synced by the first of their flushes, and by no other."""
    fs = new_file_system()
    directory = open_directory(fs)
    topics = ["a", "b", "c"]
    for topic in topics:
        create(directory, topic)
        append(directory, topic)
    counts = []
    for topic in topics:
        before = fs.operations
        directory.logs[topic, 0].flush()
        counts.append(fs.operations - before)
    assert counts == [counts[1] + 1, counts[1], counts[1]]
    assert len(open_directory(fs.after_power_loss(keep_none)).logs) == len(topics)


def test_records_that_were_never_flushed_are_set_aside_where_nobody_knows_whose_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A power failure may leave records and not the metadata; the broker starts all the same."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    append(directory)
    fs = fs.after_power_loss(keep_all)
    fs._boots += 1  # the kernel wrote all of it but the metadata
    fs.remove(f"{DATA_DIR}/orders-0/partition.metadata")
    directory = open_directory(fs)
    assert directory.logs == {}
    (aside,) = [name for name in fs.list_directory(DATA_DIR) if name.endswith("-stray")]
    assert fs.read_bytes(f"{DATA_DIR}/{aside}/{0:020d}.log")
    assert f"{DATA_DIR}/orders-0 is set aside as {aside}" in caplog.text
    create(directory)


def crash_everywhere(
    prepare: Callable[[MemoryFileSystem], LogDirectory], act: Callable[[LogDirectory], None]
) -> list[LogDirectory]:
    """Opens what is left after a power failure at every operation of `act`."""
    found = []
    for operation in range(1000):
        fs = new_file_system()
        directory = prepare(fs)
        fs.lose_power_at = fs.operations + operation
        try:
            act(directory)
        except PowerFailure:
            found += [open_directory(fs.after_power_loss(s)) for s in (keep_none, keep_all)]
        else:
            assert operation > 3
            return found
    raise AssertionError("the action never ends")


def test_creation_is_all_or_nothing() -> None:
    """After a crash in it the partition is there, empty, or can be created again."""
    for directory in crash_everywhere(open_directory, create):
        if ("orders", 0) not in directory.logs:
            create(directory)
        append(directory)
        assert directory.logs["orders", 0].log_end_offset == 1


def test_deletion_is_all_or_nothing() -> None:
    """After a crash in it the partition is there with its records, or can be created again."""

    def prepare(fs: MemoryFileSystem) -> LogDirectory:
        directory = open_directory(fs)
        create(directory)
        append(directory, count=5)
        directory.logs["orders", 0].flush()
        directory.checkpoint({("orders", 0): 5})
        return directory

    for directory in crash_everywhere(prepare, lambda directory: directory.delete("orders", 0)):
        if ("orders", 0) in directory.logs:
            assert directory.logs["orders", 0].log_end_offset == 5
        else:
            create(directory)
            assert directory.logs["orders", 0].log_end_offset == 0


def test_a_pending_checkpoint_gives_way_to_a_cut() -> None:
    """A recovery point from before a truncation must not be written after it."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    append(directory, count=5)
    log = directory.logs["orders", 0]
    log.flush()
    pending = directory.start_checkpoint({})
    log.truncate_to(2)
    pending.run()
    survivor = open_directory(fs.after_power_loss(keep_none))
    assert survivor.logs["orders", 0].log_end_offset == 2


def test_records_without_partition_metadata_are_not_thrown_away() -> None:
    """A directory that only its records distinguish from a half-created one is refused."""
    fs = new_file_system()
    directory = open_directory(fs)
    create(directory)
    append(directory)
    directory.close({})
    fs.remove(f"{DATA_DIR}/orders-0/partition.metadata")
    with pytest.raises(CorruptLogError, match=r"no partition\.metadata"):
        open_directory(fs)


def test_strangers_in_the_directory_are_left_alone() -> None:
    """Files and directories that are no partitions do not keep a broker from starting."""
    fs = new_file_system()
    fs.make_directory(f"{DATA_DIR}/lost+found")
    fs.make_directory(f"{DATA_DIR}/backup-x")
    fs.write_atomic(f"{DATA_DIR}/notes-1", b"a file, not a directory")
    directory = open_directory(fs)
    assert directory.logs == {}
    assert fs.exists(f"{DATA_DIR}/backup-x")


def test_logs_are_opened_one_by_one() -> None:
    """The caller may do something else in between, and give up in between."""
    fs = new_file_system()
    directory = open_directory(fs)
    for topic in ("a", "b", "c"):
        create(directory, topic)
        append(directory, topic)
    directory.close({})
    directory = LogDirectory.claim(DATA_DIR, broker_id=1, fs=fs)
    opening = directory.opening(1000, lambda _topic: CONFIG)
    assert next(opening) == (0, 3)
    assert next(opening) == (1, 3)
    opening.close()
    assert not fs.exists(f"{DATA_DIR}/.clean-shutdown")
    assert [log.log_end_offset for log in open_directory(fs).logs.values()] == [1, 1, 1]
