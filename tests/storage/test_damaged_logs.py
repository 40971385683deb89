"""Damage and loss that no crash explains: refused, named, and cut only where an operator accepts it."""

from __future__ import annotations

import logging
import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.protocol.record_batch import HEADER_SIZE, leader_stamp, read_header
from echoless.protocol.records import Record, build_batch
from echoless.storage import accepted_loss
from echoless.storage.damaged_batch import change_since_written
from echoless.storage.file_system import CorruptLogError, StorageError
from echoless.storage.log import Log
from echoless.storage.log_directory import LogDirectory
from echoless.storage.opening import LogOpening
from echoless.storage.whole_batches import whole_batches_after
from tests.fakes.memory_file_system import MemoryFileSystem, PowerFailure, keep_all, keep_none
from tests.storage.log_workload import make_batch, new_file_system
from tests.storage.one_log import DIRECTORY, NOW_MS, SMALL, OneLog

KEY = ("orders", 0)
COMMAND = "echoless accept-loss /data orders-0"
BATCHES = 20


def filled() -> OneLog:
    one = OneLog()
    one.fill(BATCHES)
    return one


def open_damaged(one: OneLog, *, is_committed: bool = False, is_tail_safe: bool = False) -> None:
    one.log = Log.open(
        LogOpening(
            directory=DIRECTORY,
            config=SMALL,
            fs=one.fs,
            now_ms=NOW_MS,
            is_committed=is_committed,
            is_tail_safe=is_tail_safe,
        )
    )


def on_disk(fs: MemoryFileSystem, directory: str = DIRECTORY) -> dict[str, bytes]:
    return {name: fs.read_bytes(f"{directory}/{name}") for name in fs.list_directory(directory)}


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.mark.parametrize("position", [8, 80], ids=["length", "records"])
@pytest.mark.parametrize("promise", ["is_committed", "is_tail_safe"])
def test_damage_before_whole_batches_is_no_torn_write(promise: str, position: int) -> None:
    """Later batches may have been acknowledged: file, position, figures and command are named."""
    one = filled()
    name = one.files(".log")[1]
    one.damage(name, position)
    before = on_disk(one.fs)
    with pytest.raises(CorruptLogError) as caught:
        open_damaged(one, **{promise: True})
    assert caught.value.path == f"{DIRECTORY}/{name}"
    assert caught.value.position == 0
    for part in ("whole batches follow", "records of offsets", COMMAND):
        assert part in str(caught.value)
    assert on_disk(one.fs) == before


def test_what_a_power_failure_explains_is_cut_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """Without a promise: the line has the bytes, the offsets and what goes with them."""
    one = filled()
    one.damage(one.files(".log")[1], 80)
    open_damaged(one)
    (line,) = messages(caplog, logging.ERROR)
    report = one.log.recovery
    assert f"cutting {report.bytes_cut} bytes from offset {one.log.log_end_offset} on" in line
    assert f"{report.segments_removed} later segments" in line
    assert f"to {BATCHES - 1}" in line
    assert "CRC" in line


@pytest.mark.parametrize("promise", ["is_committed", "is_tail_safe"])
def test_a_torn_tail_is_cut_under_any_promise(
    promise: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing whole follows it."""
    one = filled()
    name = one.files(".log")[-1]
    one.cut(name, len(one.fs.read_bytes(f"{DIRECTORY}/{name}")) - 3)
    open_damaged(one, **{promise: True})
    assert one.log.log_end_offset == BATCHES - 1
    assert messages(caplog, logging.ERROR) == []
    (line,) = messages(caplog, logging.WARNING)
    assert "no whole batch follows" in line


@pytest.mark.parametrize("promise", ["is_committed", "is_tail_safe"])
def test_no_flipped_bit_has_the_last_batch_cut(promise: str) -> None:
    """All its bytes are there, and it may have been acknowledged."""
    one = filled()
    name = one.files(".log")[-1]
    content = one.fs.read_bytes(f"{DIRECTORY}/{name}")
    size = read_header(content[-_last_size(content) :]).size
    refused = 0
    for bit in range(0, 8 * size, 3):  # some of each byte
        copy = OneLog()
        copy.fs = one.fs.after_power_loss(keep_all)
        flipped = bytearray(content)
        flipped[len(content) - size + bit // 8] ^= 1 << bit % 8
        copy.fs.write_atomic(f"{DIRECTORY}/{name}", bytes(flipped))
        try:
            open_damaged(copy, **{promise: True})
        except CorruptLogError as error:
            refused += "echoless accept-loss" in str(error)
        else:  # a higher offset or epoch, which the checksum does not cover: nothing is cut
            assert copy.log.log_end_offset >= BATCHES
    assert refused >= 8 * (size - 12) // 3


def _last_size(content: bytes) -> int:
    """The bytes of the last batch of a file."""
    position = size = 0
    while position < len(content):
        size = read_header(content, position).size
        position += size
    return size


@pytest.mark.parametrize("promise", ["is_committed", "is_tail_safe", "none"])
def test_a_last_batch_cut_anywhere_is_torn(promise: str) -> None:
    """A kill ends a write between two bytes, and so does a full disk."""
    one = filled()
    name = one.files(".log")[-1]
    size = _last_size(one.fs.read_bytes(f"{DIRECTORY}/{name}"))
    whole = one.fs.read_bytes(f"{DIRECTORY}/{name}")
    for lost in range(1, size):
        copy = OneLog()
        copy.fs = one.fs.after_power_loss(keep_all)
        copy.cut(name, len(whole) - lost)
        open_damaged(copy, **({} if promise == "none" else {promise: True}))
        assert copy.log.log_end_offset == BATCHES - 1


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("before", [0, 100, 511, 512])
def test_sectors_that_a_power_failure_left_empty_are_a_torn_write(before: int, count: int) -> None:
    """The length of a file may be on disk before its data; after a kill nothing of it can be missing."""
    value = random.Random(before).randbytes(3000)
    batch = build_batch([Record(0, NOW_MS, None, value, ())])
    for first in range(-(-(before + HEADER_SIZE) // 512), (before + len(batch)) // 512):
        content = bytearray(bytes(before) + batch)
        for place in range(first * 512, min((first + count) * 512, len(content))):
            content[place] = 0
        file = new_file_system().open("/data/0.log", create=True)
        file.append([bytes(content)])
        assert change_since_written(file, before, may_lack_sectors=True) is None
        assert change_since_written(file, before, may_lack_sectors=False) is not None


def test_the_end_of_a_file_may_be_lost_before_the_next_one() -> None:
    """A flush in progress may span two files; a kill without a power failure loses neither."""
    one = filled()
    name = one.files(".log")[0]
    one.cut(name, len(one.fs.read_bytes(f"{DIRECTORY}/{name}")) - 3)
    copy = one.fs.after_power_loss(keep_all)
    with pytest.raises(CorruptLogError, match="whole batches follow"):
        open_damaged(one, is_tail_safe=True)
    one.fs = copy
    open_damaged(one, is_committed=True)
    assert one.log.log_end_offset < BATCHES


def test_a_batch_inside_a_torn_record_counts_for_nothing() -> None:
    """A client may send batches as values, and name any offsets in them."""
    one = OneLog()
    inner = make_batch()
    inner = leader_stamp(read_header(inner), 7, -1) + inner[16:]
    batch = build_batch([Record(0, NOW_MS, None, inner + bytes(40), ())])
    one.append()
    one.log.append(batch, read_header(batch), 0, NOW_MS)
    name = one.files(".log")[-1]
    one.cut(name, len(one.fs.read_bytes(f"{DIRECTORY}/{name}")) - 3)
    open_damaged(one, is_committed=True)
    assert one.log.log_end_offset == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(0, 7), st.integers(0, 10**6), st.integers(0, 2**40))
def test_the_batches_after_any_flipped_bit_are_found(
    count: int, damaged: int, bit: int, base_offset: int
) -> None:
    """All of them, in order, wherever the bit is."""
    damaged %= count
    batches = []
    for number in range(count):
        batch = make_batch(size=7 * number)
        batches.append(leader_stamp(read_header(batch), base_offset + number, 3) + batch[16:])
    broken = bytearray(batches[damaged])
    # The leader's stamp, but for the length, is not covered by the CRC.
    bit = 8 * 17 + bit % (8 * (len(broken) - 17))
    broken[bit // 8] ^= 1 << bit % 8
    fs = MemoryFileSystem()
    fs.write_atomic("/x.log", b"".join([*batches[:damaged], broken, *batches[damaged + 1 :]]))
    position = sum(map(len, batches[:damaged]))
    file = fs.open("/x.log")
    found = [
        placed.header.base_offset
        for placed in whole_batches_after(file, position, base_offset + damaged, 3)
    ]
    assert found == [base_offset + number for number in range(damaged + 1, count)]


# --- whole directories ---


def open_directory(fs: MemoryFileSystem, *, is_committed: bool = False) -> LogDirectory:
    return LogDirectory.open(
        "/data",
        broker_id=1,
        fs=fs,
        now_ms=NOW_MS,
        config_for=lambda _: SMALL,
        is_committed=is_committed,
    )


def prepared(fs: MemoryFileSystem) -> LogDirectory:
    """A directory with a log of several segments."""
    directory = open_directory(fs)
    log = directory.create(*KEY, uuid.UUID(int=7), SMALL, now_ms=NOW_MS)
    for sequence in range(BATCHES):
        batch = make_batch(producer_id=1, epoch=0, sequence=sequence)
        log.append(batch, read_header(batch), 0, NOW_MS)
    directory.vouch_for_tail()
    return directory


def closed() -> MemoryFileSystem:
    fs = new_file_system()
    prepared(fs).close({KEY: BATCHES})
    return fs


def logs_of(fs: MemoryFileSystem) -> list[str]:
    return [name for name in fs.list_directory(DIRECTORY) if name.endswith(".log")]


def flip(fs: MemoryFileSystem, name: str, position: int) -> None:
    data = bytearray(fs.read_bytes(f"{DIRECTORY}/{name}"))
    data[position] ^= 1
    fs.write_atomic(f"{DIRECTORY}/{name}", bytes(data))


@pytest.mark.parametrize("damage", ["first", "middle", "last", "all", "batch", "bit"])
def test_a_clean_start_serves_nothing_that_is_missing(damage: str) -> None:
    """Segments that are gone, a whole batch cut off the end, a flipped bit in the last batch."""
    fs = closed()
    names = logs_of(fs)
    last = f"{DIRECTORY}/{names[-1]}"
    data = fs.read_bytes(last)
    if damage == "bit":
        flip(fs, names[-1], len(data) - 1)
    elif damage == "batch":
        size = read_header(data).size
        assert len(data) > size
        fs.write_atomic(last, data[: len(data) - size])
    else:
        doomed = {"first": names[:1], "middle": names[1:2], "last": names[-1:], "all": names}
        for name in doomed[damage]:
            fs.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(CorruptLogError, match=COMMAND):
        open_directory(fs)


def killed_without_first() -> MemoryFileSystem:
    """A directory with a checkpoint, as a kill left it; then its first segment is gone."""
    fs = new_file_system()
    directory = open_directory(fs)
    log = directory.create(*KEY, uuid.UUID(int=7), SMALL, now_ms=NOW_MS)
    for sequence in range(BATCHES):
        batch = make_batch(producer_id=1, epoch=0, sequence=sequence)
        log.append(batch, read_header(batch), 0, NOW_MS)
    log.flush()
    directory.checkpoint({KEY: BATCHES})
    killed = fs.after_power_loss(keep_all)
    killed.remove(f"{DIRECTORY}/{logs_of(killed)[0]}")
    return killed


def test_a_missing_first_segment_is_noticed_after_a_kill() -> None:
    """Retention removes only what is below the log start on disk, so nothing else removed it."""
    fs = killed_without_first()
    second = logs_of(fs)[0]
    before = on_disk(fs)
    with pytest.raises(CorruptLogError, match=f"(?s){second}.*began at 0.*{COMMAND}"):
        open_directory(fs)
    assert on_disk(fs) == before
    accepted_loss.accept(fs, "/data", KEY)
    log = open_directory(fs).logs[KEY]
    assert (log.log_start_offset, log.log_end_offset) == (int(second[:20]), BATCHES)
    again = open_directory(fs.after_power_loss(keep_all)).logs[KEY]
    assert again.log_start_offset == int(second[:20])


def test_an_accepted_beginning_survives_power_failures() -> None:
    """After every step of the start that obeys, later ones find the loss accepted."""
    for operation in range(1000):
        fs = killed_without_first()
        second = int(logs_of(fs)[0][:20])
        accepted_loss.accept(fs, "/data", KEY)
        fs.lose_power_at = fs.operations + operation
        try:
            open_directory(fs)
        except PowerFailure:
            for survivor in (fs.after_power_loss(keep_none), fs.after_power_loss(keep_all)):
                for _ in range(2):
                    log = open_directory(survivor).logs[KEY]
                    assert log.log_start_offset == second
                    survivor = survivor.after_power_loss(keep_none)  # noqa: PLW2901 - the next life
        else:
            assert operation > 3
            return
    raise AssertionError("the start never ends")


def test_a_loss_is_accepted_once() -> None:
    """The log is cut at the damage, nothing else; the next damage is refused again."""
    fs = closed()
    name = logs_of(fs)[-1]
    flip(fs, name, 80)
    fs.remove("/data/.clean-shutdown")
    with pytest.raises(CorruptLogError):
        open_directory(fs, is_committed=True)
    accepted_loss.accept(fs, "/data", KEY)
    directory = open_directory(fs, is_committed=True)
    assert directory.logs[KEY].log_end_offset == int(name[:20])
    assert directory.logs[KEY].recovery.bytes_cut > 0
    assert not directory.tail_is_safe
    directory.close({KEY: 0})
    assert not fs.exists(f"{DIRECTORY}/accepted-loss")
    fs.remove(f"{DIRECTORY}/{logs_of(fs)[1]}")
    with pytest.raises(CorruptLogError):
        open_directory(fs)


def test_damaged_leader_epochs_are_made_again() -> None:
    """Refused, since replicas are cut by them; the command reads them from the batches again."""
    fs = closed()
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    before = fs.read_bytes(path)
    flip(fs, "leader-epoch-checkpoint", len(before) - 12)
    with pytest.raises(CorruptLogError, match=COMMAND):
        open_directory(fs)
    accepted_loss.accept(fs, "/data", KEY)
    directory = open_directory(fs)
    assert directory.logs[KEY].log_end_offset == BATCHES
    directory.close({KEY: BATCHES})
    assert fs.read_bytes(path) == before


def test_a_damaged_replacement_can_be_given_up() -> None:
    """The command that the refusal names helps: what is left of the old log is opened."""
    fs = closed()
    fs.write_atomic(f"{DIRECTORY}/replacement.snapshot", b"nonsense")
    with pytest.raises(CorruptLogError, match=COMMAND):
        open_directory(fs)
    accepted_loss.accept(fs, "/data", KEY)
    assert open_directory(fs).logs[KEY].log_end_offset == BATCHES
    assert not fs.exists(f"{DIRECTORY}/replacement.snapshot")


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ],
)
def test_a_damaged_checkpoint_is_refused_with_a_remedy(name: str) -> None:
    """Without the file the log is read from its beginning, and nothing of it is lost."""
    fs = closed()
    data = bytearray(fs.read_bytes(f"/data/{name}"))
    data[5] ^= 1
    fs.write_atomic(f"/data/{name}", bytes(data))
    with pytest.raises(StorageError, match=f"{name}: .*or remove the file"):
        open_directory(fs)
    fs.remove(f"/data/{name}")
    assert open_directory(fs).logs[KEY].log_end_offset == BATCHES


def test_a_missing_directory_is_accepted() -> None:
    """The partition starts empty; a name that is not missing is refused."""
    fs = closed()
    fs.remove_tree(DIRECTORY)
    with pytest.raises(CorruptLogError, match=COMMAND):
        open_directory(fs)
    with pytest.raises(StorageError, match="none is missing"):
        accepted_loss.accept(fs, "/data", ("orders", 1))
    accepted_loss.accept(fs, "/data", KEY)
    directory = open_directory(fs)
    assert directory.logs == {}
    assert not directory.tail_is_safe


def test_an_accepted_loss_survives_power_failures() -> None:
    """After every step of the command and of the start that obeys it, the log is open in the end."""
    for operation in range(1000):
        fs = closed()
        flip(fs, logs_of(fs)[1], 80)
        fs.lose_power_at = fs.operations + operation
        try:
            accepted_loss.accept(fs, "/data", KEY)
            open_directory(fs, is_committed=True)
        except PowerFailure:
            for survivor in (fs.after_power_loss(keep_none), fs.after_power_loss(keep_all)):
                accepted_loss.accept(survivor, "/data", KEY)
                log = open_directory(survivor, is_committed=True).logs[KEY]
                assert log.log_end_offset == int(logs_of(survivor)[1][:20])
        else:
            assert operation > 10
            return
    raise AssertionError("the start never ends")


def test_forgotten_producers_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """The snapshot at the beginning of the log is the last that knew them."""
    one = filled()
    one.log.flush()
    one.log.advance_log_start(12)
    one.log.delete_old_segments(NOW_MS)
    one.log.close()
    first = one.log.first_offset
    assert first > 0
    for name in one.files(".snapshot"):
        one.damage(name, 20)
    log = one.open(recovery_point=BATCHES, log_start_offset=12, clean=True)
    assert log.recovery.producers_forgotten
    assert log.recovery.is_notable
    (line,) = messages(caplog, logging.ERROR)
    assert f"offset {first}" in line
    assert len(messages(caplog, logging.WARNING)) == log.recovery.snapshots_damaged > 1
