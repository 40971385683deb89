"""Appends to a led partition of an internal topic: what one turn of the event loop asks for is one batch.

Each append has a token. Its records are never divided; several appends share a batch as far as they fit. The
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


class Appends:
    """The appends to one partition in one leader epoch. Belongs to the event loop."""

    def __init__(self, leadership: Leadership, outcomes: Outcomes, parts: AppendParts) -> None:
        self._leadership = leadership
        self._partition = leadership.partition
        self._outcomes = outcomes
        self._parts = parts
        self._asked: list[_Asked] = []
        """The appends of this turn of the loop."""
        self._stored: deque[_Stored] = deque()
        """Batches in the log that are not committed, the oldest first."""
        self._is_closed = False

    def append(self, token: int, records: Sequence[StateRecord]) -> None:
        """Appends the records at the end of this turn of the loop. Tokens rise."""
        size = sum([len(one.key) + len(one.value or b"") + RECORD_OVERHEAD for one in records])
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._append_all)
        self._asked.append(_Asked(token, records, size))

    def append_now(self) -> None:
        """Appends what this turn of the loop has asked for so far, instead of at its end."""
        if self._asked:
            self._append_all()

    def close(self) -> None:
        """Stops notifying: the leadership was lost."""
        self._is_closed = True
        for stored in self._stored:
            stored.close()
        self._stored.clear()
        self._asked.clear()

    # --- storing ---

    def _append_all(self) -> None:
        asked, self._asked = self._asked, []
        bytes_max = min(self._partition.rules.bytes_max, self._partition.log.config.segment_bytes)
        batch: list[_Asked] = []
        size = HEADER_SIZE
        for one in asked:
            if batch and size + one.size > bytes_max:
                self._append_batch(batch, bytes_max)
                batch, size = [], HEADER_SIZE
            batch.append(one)
            size += one.size
        if batch:
            self._append_batch(batch, bytes_max)

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
            self._wait(tokens, next_offset)

    def _store(self, asked: list[_Asked], bytes_max: int) -> int:
        """Returns the high watermark that commits the records. Raises `KafkaError`, `StorageError`."""
        self._leadership.check_held()
        least = sum([one.size - RECORD_OVERHEAD * len(one.records) for one in asked])
        if least > bytes_max:  # known before they are copied, which takes a while
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{least} bytes of keys and values")
        wall_ms = self._parts.wall_ms()
        records = [Record(0, wall_ms, r.key, r.value) for one in asked for r in one.records]
        batch = build_batch(records)
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

    def _wait(self, tokens: list[int], next_offset: int) -> None:
        stored = _Stored(tokens, next_offset, self._partition, self._look, self._doubt)
        self._stored.append(stored)
        if self._partition.high_watermark >= next_offset:
            self._look()
        else:
            stored.wait(self._parts.timeout_s)

    def _look(self) -> None:
        """Notifies of everything that the high watermark has passed, the oldest first.

        The watermark also passes records when the ISR shrinks; like a produce with acks=all, those that too few
        replicas have are not acknowledged.
        """
        partition = self._partition
        while self._stored and not self._is_closed:
            stored = self._stored[0]
            if partition.high_watermark < stored.next_offset:
                break
            self._stored.popleft()
            stored.close()
            if len(partition.isr) < partition.rules.min_insync_replicas:
                self._doubt(stored, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            for token in stored.tokens:
                if not self._is_closed:
                    self._outcomes.committed(token)

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
