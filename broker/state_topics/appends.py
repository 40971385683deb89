"""Appends to a led partition of an internal topic: what one turn of the event loop asks for is one batch.

Each append has a token. Its records are never divided; several appends share a batch as far as they fit, and one of many
records, whose batch was made beforehand, has it alone; so has one that is part of a transaction. One batch is appended in a step, and the next one in a later turn. The
coordinator is notified of each token once it is known whether the records are in the log, in the order of
the tokens: `committed` when the high watermark has passed them, never earlier (hazard H2); `failed` if they
were refused, are not committed in time, or are in the log while the lead is in doubt or too few replicas have them.

Markers that others append to the partition (`records/markers.py`) are notified of in the same order, once committed.

Appends with the coordinator's origin, in one leader epoch: a broker that was deposed without noticing cannot get
anything committed (hazard H1).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from echoless.broker.network.loop_turn import LOOP_TURN
from echoless.broker.partitions.partition import Partition
from echoless.broker.state_topics.append_parts import AppendParts
from echoless.broker.state_topics.leadership import Leadership
from echoless.coordinators.effects import InTransaction, StateRecord
from echoless.protocol.control_records import EndMarker, MarkerType
from echoless.protocol.dedup import Reject
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.record_batch import (
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    seal_batch,
)
from echoless.protocol.records import Record, build_batch
from echoless.storage.appended import Appended
from echoless.storage.file_system import StorageError

RECORD_OVERHEAD: Final = 32
"""The most bytes of a record besides its key and value."""
NOTIFIED_AT_ONCE_RECORDS: Final = 1_000
"""Records after which the notification of the next batch has a step of its own: each takes about a microsecond."""


class Outcomes(Protocol):
    """The receiver of the outcomes of appends."""

    def committed(self, token: int) -> None:
        """The records are committed; this may follow a failure with `may_commit`."""

    def ended(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of a producer is committed."""

    def failed(self, token: int, code: ErrorCode, *, may_commit: bool) -> None:
        """The records were refused, or (`may_commit`) are in the log and must not be acknowledged."""


class _Asked(NamedTuple):
    token: int
    records: Sequence[StateRecord]
    size: int
    batch: bytes | None
    """The batch of these records, if it was made before; no others share it."""
    transaction: InTransaction | None = None

    @property
    def is_alone(self) -> bool:
        """Whether no others share its batch."""
        return self.batch is not None or self.transaction is not None


class Appends:
    """The appends to one partition in one leader epoch. Belongs to the event loop."""

    def __init__(self, leadership: Leadership, outcomes: Outcomes, parts: AppendParts) -> None:
        self._leadership = leadership
        self._partition = leadership.partition
        self._outcomes = outcomes
        self._parts = parts
        self._asked: deque[_Asked] = deque()
        """The appends that are not in the log yet: of this turn of the loop, and what earlier ones have left."""
        self._stored: deque[_Stored] = deque()
        """Batches in the log that are not committed, the oldest first."""
        self._will_look = False
        """Whether the rest of what is committed has a later step."""
        self._is_closed = False
        self._settled: list[tuple[int, asyncio.Future[bool]]] = []
        """Waiters for the notification of everything below an offset."""
        self._partition.marker_listener = self._note_marker

    def append(
        self,
        token: int,
        records: Sequence[StateRecord],
        batch: bytes | None = None,
        transaction: InTransaction | None = None,
    ) -> None:
        """Appends the records at the end of this turn of the loop, or after those that wait. Tokens rise."""
        size = sum([len(one.key) + len(one.value or b"") + RECORD_OVERHEAD for one in records])
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._append_in_turns)
        self._asked.append(_Asked(token, records, size, batch, transaction))

    def append_now(self) -> None:
        """Appends what has been asked for so far, and notifies of what is committed, in this step."""
        while self._asked:
            self._append_next()
        if self._will_look:
            self._look_to_the_end()

    def close(self) -> None:
        """Stops notifying: the leadership was lost."""
        self._is_closed = True
        if self._partition.marker_listener == self._note_marker:
            self._partition.marker_listener = None
        for _, settled in self._settled:
            if not settled.done():
                settled.set_result(False)
        self._settled.clear()
        for stored in self._stored:
            stored.close()
        self._stored.clear()
        self._asked.clear()

    # --- storing ---

    def _append_in_turns(self) -> None:
        """Appends one batch; others, if that was not all, in later turns of the loop."""
        if self._asked:
            self._append_next()
        if self._asked:
            LOOP_TURN.wait(self._append_in_turns)

    def _append_next(self) -> None:
        """Appends one batch, of as many appends as fit."""
        bytes_max = min(self._partition.rules.bytes_max, self._partition.log.config.segment_bytes)
        asked, size = [self._asked.popleft()], HEADER_SIZE
        while not asked[-1].is_alone and self._asked and not self._asked[0].is_alone:
            size += asked[-1].size
            if size + self._asked[0].size > bytes_max:
                break
            asked.append(self._asked.popleft())
        self._append_batch(asked, bytes_max)

    def _append_batch(self, asked: list[_Asked], bytes_max: int) -> None:
        if self._is_closed:
            return
        tokens = [one.token for one in asked]
        try:
            next_offset = self._store(asked, bytes_max)
        except KafkaError as error:
            self._fail(tokens, error.code)
        except StorageError as error:
            self._parts.fail_storage(error)
            self._fail(tokens, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self._wait(tokens, sum([len(one.records) for one in asked]), next_offset)

    def _store(self, asked: list[_Asked], bytes_max: int) -> int:
        """Returns the high watermark that commits the records. Raises `KafkaError`, `StorageError`."""
        self._leadership.check_held()
        least = sum([one.size - RECORD_OVERHEAD * len(one.records) for one in asked])
        if least > bytes_max:  # known before they are copied, which takes a while
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{least} bytes of keys and values")
        batch, transaction = asked[0].batch, asked[0].transaction
        if batch is None:
            wall_ms = self._parts.wall_ms()
            batch = build_batch(
                [Record(0, wall_ms, r.key, r.value) for one in asked for r in one.records]
            )
        if transaction is not None:
            if transaction.may_append is not None and not transaction.may_append():
                message = "the transaction may have ended since its coordinator was asked"
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, message)
            batch = in_transaction(batch, transaction.producer_id, transaction.producer_epoch)
        if len(batch) > bytes_max:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes of records")
        header = read_header(batch)
        result = self._partition.append_for_coordinator(batch, header, self._parts.now_ms())
        if isinstance(result, Reject):
            raise KafkaError(result.code, result.reason)
        assert isinstance(result, Appended), "without a sequence nothing is a repeat"
        self._parts.metrics.state_appended(header)
        return result.last_offset + 1

    def _fail(self, tokens: list[int], code: ErrorCode) -> None:
        for token in tokens:
            if not self._is_closed:
                self._outcomes.failed(token, code, may_commit=False)

    # --- markers ---

    def _note_marker(self, header: BatchHeader, marker: EndMarker, offset: int) -> None:
        """Has the end of a transaction notified of, after what was stored before it."""
        stored = self._wait([], 0, offset + 1)
        stored.ended = header.producer_id, marker.type is MarkerType.COMMIT
        self._look()

    def settled(self, next_offset: int) -> asyncio.Future[bool]:
        """True once everything below an offset was notified of, which is committed; False if the lead is lost first."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            future.set_result(False)
        else:
            self._settled.append((next_offset, future))
            self._settle()
        return future

    def _settle(self) -> None:
        if not self._settled:
            return
        least = self._stored[0].next_offset if self._stored else self._partition.high_watermark + 1
        left = []
        for next_offset, future in self._settled:
            if next_offset >= least:
                left.append((next_offset, future))
            elif not future.done():
                future.set_result(True)
        self._settled = left

    # --- waiting for the high watermark ---

    def _wait(self, tokens: list[int], record_count: int, next_offset: int) -> _Stored:
        stored = _Stored(tokens, next_offset, self._partition, self._look, self._doubt)
        stored.record_count = record_count
        self._stored.append(stored)
        if self._partition.high_watermark >= next_offset:
            if tokens:
                self._look()
        else:
            stored.wait(self._parts.timeout_s)
        return stored

    def _look(self) -> None:
        """Notifies of what the high watermark has passed, the oldest first; of many records in several steps."""
        if self._will_look:
            return
        if self._notify_of(NOTIFIED_AT_ONCE_RECORDS):
            self._will_look = True
            LOOP_TURN.wait(self._look_again)
        self._settle()

    def _look_again(self) -> None:
        self._will_look = False
        self._look()

    def _look_to_the_end(self) -> None:
        self._notify_of(None)
        self._settle()

    def _notify_of(self, records_max: int | None) -> bool:
        """Notifies of the batches that the high watermark has passed; returns whether some are left after so many records.

        The watermark also passes records when the ISR shrinks; like a produce with acks=all, those that too few
        replicas have are not acknowledged.
        """
        partition, records = self._partition, 0
        while self._stored and not self._is_closed:
            stored = self._stored[0]
            if partition.high_watermark < stored.next_offset:
                break
            if records_max is not None and records >= records_max:
                return True
            records += stored.record_count
            self._stored.popleft()
            stored.close()
            if len(partition.isr) < partition.rules.min_insync_replicas:
                self._doubt(stored, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            for token in stored.tokens:
                if not self._is_closed:
                    self._outcomes.committed(token)
            if stored.ended is not None and not self._is_closed:
                producer_id, is_commit = stored.ended
                self._outcomes.ended(producer_id, is_commit=is_commit)
        return False

    def _doubt(self, stored: _Stored, code: ErrorCode) -> None:
        """Notifies, once, of the failure of records that are in the log and may be committed later."""
        if stored.has_failed:
            return
        stored.has_failed = True
        for token in stored.tokens:
            if not self._is_closed:
                self._outcomes.failed(token, code, may_commit=True)


def in_transaction(batch: bytes, producer_id: int, producer_epoch: int) -> bytes:
    """The batch as one of a producer's transaction, without a sequence."""
    header = read_header(batch)
    changed = header._replace(
        attributes=header.attributes | TRANSACTIONAL_BIT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return seal_batch(changed, batch[HEADER_SIZE:])


class _Stored:
    """A batch in the log whose offsets the high watermark has not passed yet."""

    __slots__ = (
        "_doubt",
        "_future",
        "_is_closed",
        "_look",
        "_partition",
        "_timer",
        "ended",
        "has_failed",
        "next_offset",
        "record_count",
        "tokens",
    )

    def __init__(
        self,
        tokens: list[int],
        next_offset: int,
        partition: Partition,
        look: Callable[[], None],
        doubt: Callable[[_Stored, ErrorCode], None],
    ) -> None:
        """Calls `look` when the high watermark has moved far enough, `doubt` whenever that is in question."""
        self.tokens = tokens
        self.next_offset = next_offset
        self.record_count = 0
        self.ended: tuple[int, bool] | None = None
        """The producer whose transaction it ends, and whether by a commit."""
        self.has_failed = False
        self._partition = partition
        self._look = look
        self._doubt = doubt
        self._is_closed = False
        self._future: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, timeout_s: float) -> None:
        """Waits for the high watermark; in doubt after the timeout."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout_s, self._doubt, self, ErrorCode.REQUEST_TIMED_OUT)
        self._wait_for_commit()

    def _wait_for_commit(self) -> None:
        self._future = self._partition.waiters.commit.wait_for(self.next_offset)
        self._future.add_done_callback(self._reached)

    def _reached(self, future: asyncio.Future[None]) -> None:
        if self._is_closed or future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._look()
            return
        unknown = ErrorCode.UNKNOWN_SERVER_ERROR
        self._doubt(self, error.code if isinstance(error, KafkaError) else unknown)
        if self._is_closed:
            return
        # The lead may be proved again, and the records committed, without another append.
        if self._partition.high_watermark >= self.next_offset:
            self._look()
        else:
            self._wait_for_commit()

    def close(self) -> None:
        """Stops waiting."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._future is not None and not self._future.done():
            self._partition.waiters.commit.abandon(self._future)
