"""Replays the log of a led partition, and waits until everything that was replayed is committed.

Invariant: nothing is answered from a record that another leader could still cut off (hazard H7). The replay goes
up to the end of the log, so it may include records above the high watermark; `load` returns once that has
passed them.

Invariant: a record that cannot be read ends the loading; only types that are not known are skipped.

Reading a slice is a matter of microseconds; decoding and applying it is done in a thread. The log is not cut
while this broker leads, and what is appended meanwhile is not read: nothing is, before `load` returns.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from echoless.broker.garbage import RECORDS_FROZEN_FROM, Freezer
from echoless.broker.network.turns import in_thread
from echoless.broker.state_topics.leadership import Leadership
from echoless.protocol.control_records import MarkerType, read_marker
from echoless.protocol.errors import DecodeError, KafkaError
from echoless.protocol.record_batch import BatchHeader, compute_crc, walk
from echoless.protocol.records import iterate_records

logger = logging.getLogger(__name__)

LOADED: Final = Freezer(RECORDS_FROZEN_FROM)
"""Counts the records that were loaded, of all state topics: what is made of them lives long."""
SLICE_BYTES: Final = 256 * 1024
"""Bytes of the log that are read and decoded at a time."""
WARNINGS_MAX: Final = 20
"""Records that cannot be applied and get a line of their own; the rest is counted."""

Apply = Callable[[bytes, bytes | None], str | None]
"""Applies a record; returns why it was skipped, None if it was not. Raises `DecodeError` if it cannot be read."""


class ReplayReceiver(NamedTuple):
    """The receiver of what is in the log."""

    apply: Apply
    apply_in_transaction: Callable[[int, bytes, bytes | None], str | None] | None = None
    """Applies a record of this producer's transaction. None: state that has no transactions, and skips such records."""
    end_transaction: Callable[[int, bool], None] | None = None
    """Takes note of the producer's marker, and whether it is a commit."""


async def load(leadership: Leadership, replayed: ReplayReceiver) -> int:
    """Applies every record of the partition; returns how many there were.

    Raises `KafkaError` NOT_LEADER_OR_FOLLOWER once this broker no longer leads in this epoch; `DecodeError`
    if a record cannot be read, `StorageError` if the log cannot.
    """
    partition = leadership.partition
    log = partition.log
    end_offset, replay = log.log_end_offset, _Replay(partition.name, replayed)
    while (offset := max(replay.next_offset, log.log_start_offset)) < end_offset:
        data, count = log.read(offset, SLICE_BYTES, end_offset), replay.count
        await in_thread(partial(replay.apply_slice, data, offset))
        LOADED.made(replay.count - count)
        leadership.check_held()
    replay.report()
    await _until_committed(leadership, end_offset)
    return replay.count


async def _until_committed(leadership: Leadership, end_offset: int) -> None:
    """Waits through every doubt about the lead: nothing begins to load again if the same epoch is proved again."""
    partition = leadership.partition
    while partition.high_watermark < end_offset:
        with contextlib.suppress(KafkaError):
            await partition.waiters.commit.wait_for(end_offset)
        leadership.check_held()


class _Replay:
    """Progress of a replay. Used by one thread at a time."""

    def __init__(self, name: str, replayed: ReplayReceiver) -> None:
        self.next_offset = 0
        self.count = 0
        self._name = name
        self._replayed = replayed
        self._skipped = 0

    def apply_slice(self, data: bytes, offset: int) -> None:
        """Applies the records of whole batches from `offset` on. Raises `DecodeError`."""
        view = memoryview(data)
        for position, header in walk(view):
            batch = view[position : position + header.size]
            if compute_crc(batch) != header.crc:
                raise DecodeError(f"the CRC of the batch at offset {header.base_offset} is wrong")
            if header.is_control:
                self._end_transaction(header, batch)
            elif not header.is_transactional:
                self._apply_batch(batch, offset, self._replayed.apply)
            elif self._replayed.apply_in_transaction is not None:
                apply = partial(self._replayed.apply_in_transaction, header.producer_id)
                self._apply_batch(batch, offset, apply)
            self.next_offset = header.next_offset
        if self.next_offset <= offset:
            raise DecodeError(f"there is no whole batch at offset {offset}")

    def _end_transaction(self, header: BatchHeader, batch: memoryview) -> None:
        marker = read_marker(batch)
        if marker is not None and self._replayed.end_transaction is not None:
            self._replayed.end_transaction(header.producer_id, marker.type is MarkerType.COMMIT)

    def _apply_batch(self, batch: memoryview, offset: int, apply: Apply) -> None:
        for record in iterate_records(batch):
            if record.offset < offset:
                continue  # below the log start
            self.count += 1
            try:
                reason = "it has no key" if record.key is None else apply(record.key, record.value)
            except DecodeError as error:
                raise DecodeError(f"the record at offset {record.offset}: {error}") from error
            if reason is not None:
                self._skip(record.offset, reason)

    def _skip(self, offset: int, reason: str) -> None:
        self._skipped += 1
        if self._skipped <= WARNINGS_MAX:
            logger.warning("%s: the record at offset %d is skipped: %s", self._name, offset, reason)

    def report(self) -> None:
        """Says how many records were skipped, unless each of them was named."""
        if self._skipped > WARNINGS_MAX:
            logger.warning("%s: %d records were skipped", self._name, self._skipped)
