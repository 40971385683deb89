"""A seeded workload on a log, and a naive model that knows what may be found after each step.

The model is a list of batches and nothing else: no files, no indexes, no snapshots. Producer state
is recomputed from the whole list each time it is compared.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from echoless.protocol.dedup import BatchMetadata, Duplicate, ProducerEntry, commit
from echoless.protocol.record_batch import BatchHeader, leader_stamp, read_header
from echoless.protocol.records import Record, build_batch
from echoless.storage.appended import Appended
from echoless.storage.file_system import FileSystem
from echoless.storage.log import Log
from echoless.storage.log_config import LogConfig
from echoless.storage.log_directory import LogDirectory
from echoless.storage.producers.snapshot import encode_snapshot
from echoless.storage.producers.state import ProducerStates
from tests.fakes.memory_file_system import MemoryFileSystem

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=200, retention_ms=-1, window=3)
KEY = ("orders", 0)
DATA_DIR = "/data"
_TOPIC_ID = uuid.UUID(int=7)
_READ_BYTES = 1 << 20

Facts = dict[int, tuple[int, int, tuple[object, ...]]]
"""The fields in which producer entries must agree: all except the time of the last append."""


Entries = dict[int, ProducerEntry]


class Stored(NamedTuple):
    """A batch as it must be in the log."""

    header: BatchHeader
    data: bytes

    @property
    def end_offset(self) -> int:
        return self.header.next_offset


def new_file_system() -> MemoryFileSystem:
    """An empty data directory, its operations counted from 0."""
    fs = MemoryFileSystem()
    fs.make_directory(DATA_DIR)
    fs.sync_directory("/")
    fs.operations = 0
    return fs


def make_batch(
    *, producer_id: int = -1, epoch: int = -1, sequence: int = -1, count: int = 1, size: int = 20,
    timestamp: int = 1000,
) -> bytes:  # fmt: skip
    """A client's batch of `count` records, with values of `size` bytes."""
    records = [Record(0, timestamp + number, None, bytes(size), ()) for number in range(count)]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def stamped(batch: bytes, base_offset: int, leader_epoch: int) -> Stored:
    """The batch as a leader stores it."""
    data = leader_stamp(read_header(batch), base_offset, leader_epoch) + batch[16:]
    return Stored(read_header(data), data)


def facts_of_entries(entries: Iterable[tuple[int, ProducerEntry]]) -> Facts:
    """Producer state without times."""
    return {
        producer_id: (entry.producer_epoch, entry.run_start, entry.batches)
        for producer_id, entry in entries
    }


def facts_of_history(
    history: Iterable[Stored], window: int = CONFIG.window, known: Entries | None = None
) -> Facts:
    """The producer state after these batches, if it was `known` before them."""
    entries = dict(known or {})
    for header, _ in history:
        if header.producer_id >= 0:
            entry = entries.get(header.producer_id)
            entries[header.producer_id] = commit(entry, header, header.base_offset, 0, window)
    return facts_of_entries(entries.items())


def read_all(log: Log) -> bytes:
    """Every batch from the one that holds the log start on."""
    parts, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, _READ_BYTES, log.log_end_offset)
        assert part, f"nothing at offset {offset}"
        parts.append(part)
        offset = last_batch(part).end_offset
    return b"".join(parts)


def last_batch(data: bytes) -> Stored:
    """The last of several batches."""
    position = 0
    while True:
        header = read_header(data, position)
        if position + header.size == len(data):
            return Stored(header, data[position:])
        position += header.size


@dataclass(slots=True)
class InFlight:
    """The possible effects of the current step, should the power fail in it."""

    batch: Stored | None = None
    cut: int | None = None
    """Batches from here on may be gone."""
    start_anew: tuple[int, Entries] | None = None
    """The log may be empty and begin at this offset, with these producers."""


class Workload:
    """Runs steps on a log directory with one partition, and keeps the model."""

    def __init__(self, fs: FileSystem, seed: int) -> None:
        self.fs = fs
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000
        self.history: list[Stored] = []
        self.known: Entries = {}
        """The producers with which the log began."""
        self.log_start = 0
        self.durable_end = 0
        """Batches below this were flushed."""
        self.leader_epoch = 0
        self.in_flight = InFlight()
        self.is_created = False
        self.is_durable = False
        """Whether a power failure leaves the partition where it is: since its first flush."""
        self.survivors: list[Stored] = []
        self.surviving_known: Entries = {}
        """The batches that `check_recovered` found to be known, in the log or to its producers."""

    def start(self) -> None:
        self.directory = open_directory(self.fs, self.now_ms)
        self.log = self.directory.create(*KEY, _TOPIC_ID, CONFIG, now_ms=self.now_ms)
        self.is_created = True

    def run(self, steps: int) -> None:
        self.start()
        for _ in range(steps):
            self.step()
        self.close()

    @property
    def end(self) -> int:
        """The next offset; the log start may be after the last batch that is remembered."""
        return max(self.history[-1].end_offset if self.history else 0, self.log_start)

    def step(self) -> None:
        self.now_ms += self.rng.randrange(50)
        (step,) = self.rng.choices(
            [
                self.append, self.repeat, self.flush, self.flush_while_appending, self.roll,
                self.checkpoint, self.delete_records, self.delete_segments, self.truncate,
                self.reopen, self.change_leader, self.start_anew, self.delete_segments_meanwhile,
            ],
            [30, 3, 3, 2, 2, 3, 3, 3, 2, 1, 1, 0.3, 2],
        )  # fmt: skip
        step()
        self.in_flight = InFlight()

    def append(self) -> None:
        stored = self._next_batch()
        self.in_flight.batch = stored
        client_bytes = bytes(16) + stored.data[16:]
        header = read_header(stored.data)
        answer = self.log.append(client_bytes, header, self.leader_epoch, self.now_ms)
        assert isinstance(answer, Appended), answer
        assert (answer.base_offset, answer.last_offset) == (
            stored.header.base_offset,
            stored.header.last_offset,
        )
        self.history.append(stored)
        self.in_flight.batch = None

    def _next_batch(self) -> Stored:
        rng, producer_id = self.rng, self.rng.choice([-1, 1, 2, 3])
        count, size = rng.randrange(1, 4), rng.randrange(1, 120)
        epoch, sequence = self._next_sequence(producer_id)
        batch = make_batch(
            producer_id=producer_id, epoch=epoch, sequence=sequence, count=count, size=size,
            timestamp=self.now_ms - rng.randrange(100),
        )  # fmt: skip
        return stamped(batch, self.end, self.leader_epoch)

    def _next_sequence(self, producer_id: int) -> tuple[int, int]:
        if producer_id < 0:
            return -1, -1
        entry = self.log.producers.get(producer_id)
        if entry is None:
            return 0, 0
        if self.rng.random() < 0.05:
            return entry.producer_epoch + 1, 0
        return entry.producer_epoch, entry.last_sequence + 1

    def repeat(self) -> None:
        for stored in reversed(self.history):
            if stored.header.producer_id >= 0:
                answer = self.log.append(stored.data, stored.header, self.leader_epoch, self.now_ms)
                assert isinstance(answer, Duplicate), answer
                assert answer.original.base_offset == stored.header.base_offset
                return

    def flush(self) -> None:
        self.log.flush()
        self._note_flushed()

    def _note_flushed(self) -> None:
        assert self.log.recovery_point <= self.end
        self.is_durable = True
        self.durable_end = max(self.durable_end, self.log.recovery_point)

    def flush_while_appending(self) -> None:
        pending = self.log.start_flush()
        self.append()
        pending.run()
        self.append()
        self.log.finish_flush(pending)
        self._note_flushed()

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def checkpoint(self) -> None:
        self.directory.checkpoint({KEY: self.end})

    def delete_records(self) -> None:
        self.log_start = self.rng.randrange(self.log_start, self.end + 1)
        self.log.advance_log_start(self.log_start)

    def delete_segments(self) -> None:
        self.log.delete_old_segments(self.now_ms)
        assert self.log.log_start_offset == self.log_start

    def delete_segments_meanwhile(self) -> None:
        """Deletes as the broker does: checkpoint, take out, and remove while other work continues."""
        self.log.retire_old_segments(self.now_ms)
        self.checkpoint()
        pending = self.log.start_removal()
        if pending is None:
            return
        meanwhile = self.rng.choice(
            [self.append, self.flush, self.roll, self.truncate, self.reopen]
        )
        meanwhile()
        if meanwhile != self.reopen:
            pending.run()
            self.log.finish_removal(pending)
            assert self.log.log_start_offset == self.log_start

    def truncate(self) -> None:
        kept = max(len(self.history) - self.rng.randrange(self.rng.choice([4, 25])), 0)
        doomed = self.history[kept:]
        if not doomed or doomed[0].header.base_offset < self.log_start:
            return
        cut = doomed[0].header.base_offset
        self.in_flight.cut = cut
        self.log.truncate_to(self.rng.randrange(cut, doomed[0].end_offset))
        del self.history[kept:]
        self._note_cut(cut)

    def _note_cut(self, cut: int) -> None:
        self.durable_end = min(self.durable_end, cut)
        assert self.log.log_end_offset == cut

    def start_anew(self) -> None:
        offset = self.rng.randrange(self.end + 20)
        known = {
            producer_id: ProducerEntry(
                0, 0, self.now_ms, (BatchMetadata(sequence, sequence, sequence, 1000, 7),)
            )
            for producer_id in range(1, 4)
            if (sequence := self.rng.randrange(20)) < 15
        }
        # Should the old log survive a crash, its recovery point and log start may have gone down.
        self.in_flight = InFlight(cut=offset, start_anew=(offset, known))
        states = ProducerStates(CONFIG.window)
        for producer_id, entry in known.items():
            states.put(producer_id, entry)
        snapshot = encode_snapshot(offset, states)
        self.log.reset_to(offset, snapshot, clock_ahead_ms=0, now_ms=self.now_ms)
        self.history, self.known = [], known
        self.log_start = self.durable_end = offset
        self.is_durable = True

    def change_leader(self) -> None:
        self.leader_epoch += 1

    def reopen(self) -> None:
        self.close()
        self.directory = open_directory(self.fs, self.now_ms)
        self.log = self.directory.logs[KEY]
        assert self.directory.was_clean
        assert self.log.recovery.batches_scanned == 0
        self.check(self.log)

    def close(self) -> None:
        self.directory.close({KEY: self.end})
        self.durable_end = self.end
        self.is_durable |= self.end > 0

    def check(self, log: Log) -> None:
        """The log holds exactly what the model holds."""
        assert (log.log_start_offset, log.log_end_offset) == (self.log_start, self.end)
        self._check_bytes(log, self.history)
        assert facts_of_entries(log.producers.items()) == self._facts_of(self.history)

    def _facts_of(self, history: list[Stored]) -> Facts:
        return facts_of_history(history, known=self.known)

    def _check_bytes(self, log: Log, history: list[Stored]) -> None:
        expected = b"".join(
            stored.data for stored in history if stored.end_offset > log.log_start_offset
        )
        assert read_all(log) == expected

    def check_recovered(self, fs: FileSystem, *, nothing_lost: bool) -> LogDirectory:
        """Opens what survived, and compares it with what may have survived."""
        directory = open_directory(fs, self.now_ms)
        log = directory.logs.get(KEY)
        if log is None:
            assert not self.is_durable
            assert not (self.is_created and nothing_lost)
            return directory
        history = list(self.history)
        if self.in_flight.batch is not None:
            history.append(self.in_flight.batch)
        self.surviving_known = self.known
        if self.in_flight.start_anew is not None and self._has_started_anew(log):
            self.survivors, self.surviving_known = [], self.in_flight.start_anew[1]
            return directory
        safe = self.end if nothing_lost else self.durable_end
        if self.in_flight.cut is not None:
            safe = min(safe, self.in_flight.cut)
        least = max((s.end_offset for s in self.history if s.end_offset <= safe), default=0)
        assert log.log_start_offset <= self.log_start
        survivors = [stored for stored in history if stored.end_offset <= log.log_end_offset]
        if log.log_start_offset == log.log_end_offset:
            # The checkpointed log start may have outlived batches that were below it anyway.
            survivors = self._prefix_by_producers(log, survivors)
        end = survivors[-1].end_offset if survivors else 0
        assert end >= least, f"batches below {least} were safe, the log ends at {end}"
        self._check_bytes(log, survivors)
        assert facts_of_entries(log.producers.items()) == self._facts_of(survivors)
        self.survivors = survivors
        return directory

    def go_on(self, fs: FileSystem, directory: LogDirectory) -> None:
        """Takes what `check_recovered` found on `fs` for the truth, as a restarted broker does."""
        self.fs, self.directory = fs, directory
        self.in_flight = InFlight()
        if KEY not in directory.logs:
            self.log = directory.create(*KEY, _TOPIC_ID, CONFIG, now_ms=self.now_ms)
            self.is_created = True
            self.history, self.known, self.log_start, self.durable_end = [], {}, 0, 0
            return
        self.log = directory.logs[KEY]
        self.history, self.known = self.survivors, self.surviving_known
        self.log_start = self.log.log_start_offset
        self.durable_end = self.log.recovery_point

    def _has_started_anew(self, log: Log) -> bool:
        """Whether the log is the one that was to take the old one's place; then as a whole."""
        assert self.in_flight.start_anew is not None
        offset, known = self.in_flight.start_anew
        if not log.log_start_offset == log.log_end_offset == offset:
            return False
        if facts_of_entries(log.producers.items()) != facts_of_entries(known.items()):
            return False
        assert log.leader_epochs.entries == ()
        return True

    def _prefix_by_producers(self, log: Log, history: list[Stored]) -> list[Stored]:
        found = facts_of_entries(log.producers.items())
        for kept in range(len(history), -1, -1):
            if self._facts_of(history[:kept]) == found:
                return history[:kept]
        raise AssertionError(f"no prefix of the batches explains {found}")


def open_directory(fs: FileSystem, now_ms: int) -> LogDirectory:
    """Opens the data directory with the configuration of these tests."""
    return LogDirectory.open(
        DATA_DIR, broker_id=1, fs=fs, now_ms=now_ms, config_for=lambda _topic: CONFIG
    )
