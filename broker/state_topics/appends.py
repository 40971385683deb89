"""Appends to a led partition of an internal topic: what one turn of the event loop asks for is one batch.

Each append has a token. Its records are never divided; several appends share a batch as far as they fit, and one of many
records, whose batch was made beforehand, has it alone. One batch is appended in a step, and the next one in a later turn. The
coordinator is notified of each token once it is known whether the records are in the log, in the order of
the tokens: `committed` when the high watermark has passed them, never earlier (hazard H2); `failed` if they
were refused, are not committed in time, or are in the log while the lead is in doubt or too few replicas have them.

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
from echoless.coordinators.effects import StateRecord
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.record_batch import HEADER_SIZE, read_header
from echoless.protocol.records import Record, build_batch
from echoless.storage.file_system import StorageError

RECORD_OVERHEAD: Final = 32
"""The most bytes of a record besides its key and value."""
NOTIFIED_AT_ONCE_RECORDS: Final = 1_000
"""Records after which the notification of the next batch has a step of its own: each takes about a microsecond."""


class Outcomes(Protocol):
    """The receiver of the outcomes of appends."""

    def committed(self, token: int) -> None:
        """The records are committed; this may follow a failure with `may_commit`."""

    def failed(self, token: int, code: ErrorCode, *, may_commit: bool) -> None:
        """The records were refused, or (`may_commit`) are in the log and must not be acknowledged."""


class _Asked(NamedTuple):
    token: int
    records: Sequence[StateRecord]
    size: int
    batch: bytes | None
    """The batch of these records, if it was made before; no others share it."""


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

    def append(
        self, token: int, records: Sequence[StateRecord], batch: bytes | None = None
    ) -> None:
        """Appends the records at the end of this turn of the loop, or after those that wait. Tokens rise."""
        size = sum([len(one.key) + len(one.value or b"") + RECORD_OVERHEAD for one in records])
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._append_in_turns)
        self._asked.append(_Asked(token, records, size, batch))

    def append_now(self) -> None:
        """Appends what has been asked for so far, and notifies of what is committed, in this step."""
        while self._asked:
            self._append_next()
        if self._will_look:
            self._look_to_the_end()

    def close(self) -> None:
        """Stops notifying: the leadership was lost."""
        self._is_closed = True
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
        while asked[-1].batch is None and self._asked and self._asked[0].batch is None:
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
        batch = asked[0].batch
        if batch is None:
            wall_ms = self._parts.wall_ms()
            batch = build_batch(
                [Record(0, wall_ms, r.key, r.value) for one in asked for r in one.records]
            )
        if len(batch) > bytes_max:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes of records")
        header = read_header(batch)
        next_offset = self._partition.append_state(batch, header, self._parts.now_ms())
        self._parts.metrics.state_appended(header)
        return next_offset

    def _fail(self, tokens: list[int], code: ErrorCode) -> None:
        for token in tokens:
            if not self._is_closed:
                self._outcomes.failed(token, code, may_commit=False)

    # --- waiting for the high watermark ---

    def _wait(self, tokens: list[int], record_count: int, next_offset: int) -> None:
        stored = _Stored(tokens, next_offset, self._partition, self._look, self._doubt)
        stored.record_count = record_count
        self._stored.append(stored)
        if self._partition.high_watermark >= next_offset:
            self._look()
        else:
            stored.wait(self._parts.timeout_s)

    def _look(self) -> None:
        """Notifies of what the high watermark has passed, the oldest first; of many records in several steps."""
        if self._will_look:
            return
        if self._notify_of(NOTIFIED_AT_ONCE_RECORDS):
            self._will_look = True
            LOOP_TURN.wait(self._look_again)

    def _look_again(self) -> None:
        self._will_look = False
        self._look()

    def _look_to_the_end(self) -> None:
        self._notify_of(None)

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
        return False

    def _doubt(self, stored: _Stored, code: ErrorCode) -> None:
        """Notifies, once, of the failure of records that are in the log and may be committed later."""
        if stored.has_failed:
            return
        stored.has_failed = True
        for token in stored.tokens:
            if not self._is_closed:
                self._outcomes.failed(token, code, may_commit=True)


class _Stored:
    """A batch in the log whose offsets the high watermark has not passed yet."""

    __slots__ = (
        "_doubt",
        "_future",
        "_is_closed",
        "_look",
        "_partition",
        "_timer",
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
