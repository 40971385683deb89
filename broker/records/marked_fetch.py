"""A fetch by a client whose rows are known: only marked rows are looked at, before a wait and after it.

`session_fetch.py` answers with the rows that are news to a session, `repeated_fetch.py` with all rows of a client that
repeats its requests. Rows and marks: `fetch_rows.py`.

Invariant: a row is watched in the step in which it is read, and its mark is taken off in no other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Iterator
from typing import Generic, TypeVar

from echoless.broker.network.request import Peer
from echoless.broker.network.turns import ROWS_PER_TURN, work_in_turns
from echoless.broker.partitions.long_poll import LongPoll
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.fetch import MIN_BYTES_MAX, FetchPass
from echoless.broker.records.fetch_parts import FetchParts
from echoless.broker.records.fetch_rows import FetchRow, FetchRows
from echoless.protocol.errors import KafkaError
from echoless.protocol.fetch import PartitionFetched
from echoless.protocol.fetch_request import FetchRequest

Answered = TypeVar("Answered")


class MarkedPass(FetchPass, ABC):
    """One pass over the marked rows."""

    __slots__ = ("found", "rows")

    def __init__(
        self, parts: FetchParts, wanted: FetchRequest, peer: Peer, rows: FetchRows
    ) -> None:
        super().__init__(parts, wanted, peer)
        self.rows = rows
        self.found: list[tuple[FetchRow, PartitionFetched]] = []
        """The rows that were looked at, in their order."""

    def in_order(self) -> Iterable[FetchRow]:
        """The rows to look at."""
        return self.rows.in_order()

    def read(self) -> bool:
        """Reads all rows, which are few; returns False if one needs more than one step."""
        return all(self.look_at(row) and not self.takes_long for row in self.in_order())

    def steps(self) -> Iterator[None]:
        """Reads at most one row per step."""
        for row in self.in_order():
            self._passed_to = -1
            while not self.look_at(row):
                yield
            yield

    def look_at(self, row: FetchRow) -> bool:
        """Reads a row, and takes its mark off if nothing is owed; returns False if it needs more steps."""
        rows = self.rows
        if rows.by_key.get(row.key) is not row:
            return True  # forgotten by another request since the pass began
        found = self.row_found(row)
        if found is None:
            return False
        self.found.append((row, found))
        if self.partitions:
            (partition, _) = self.partitions.pop()
            rows.watch(row, partition)
            end = partition.visible_end(read_committed=self._is_read_committed)
            if row.wanted.offset >= end and not found.records and self.is_settled(row, found):
                rows.take_off(row, has_uncommitted=end < partition.log.log_end_offset)
        else:
            rows.unwatch(row)
        return True

    def drop(self) -> None:
        """Drops what was found, with the records: a wait must not keep them in memory."""
        self.found.clear()

    def row_found(self, row: FetchRow) -> PartitionFetched | None:
        """The outcome for a row; None if it needs more steps."""
        return self.look(row.topic, row.wanted)

    @abstractmethod
    def is_settled(self, row: FetchRow, found: PartitionFetched) -> bool:
        """Whether a row without records and without error need not be looked at again before its next event."""

    def missing_bytes(self) -> int:
        """The bytes still missing; 0 if records already stored may yet be committed."""
        rows = self.rows
        if rows.uncommitted or any(map(self._has_uncommitted, rows.marked)):
            return 0
        return min(self._wanted.min_bytes, MIN_BYTES_MAX) - self.size

    def _has_uncommitted(self, row: FetchRow) -> bool:
        partition: Partition | None = row.partition
        return (
            partition is not None
            and partition.visible_end(read_committed=self._is_read_committed)
            < partition.log.log_end_offset
        )


class MarkedFetch(ABC, Generic[Answered]):
    """One request."""

    def __init__(
        self, parts: FetchParts, wanted: FetchRequest, peer: Peer, rows: FetchRows
    ) -> None:
        self._parts = parts
        self._wanted = wanted
        self._peer = peer
        self._rows = rows

    @abstractmethod
    def new_pass(self) -> MarkedPass:
        """A pass that has read nothing yet."""

    @abstractmethod
    def taken(self, one_pass: MarkedPass) -> Answered:
        """The answer, made of what the pass has found."""

    @property
    def is_overtaken(self) -> bool:
        """Whether another request has taken this one's place, which then reads nothing any more."""
        return False

    def answer(self) -> Answered | Awaitable[Answered]:
        """The answer, at once or after a wait."""
        rows = self._rows
        rows.woken.clear()
        if len(rows.marked) > ROWS_PER_TURN:
            return self._wait(None)
        one_pass = self.new_pass()
        if not one_pass.read():
            return self._wait(None)
        if one_pass.is_enough or self._wanted.max_wait_ms <= 0 or self._parts.stopping.is_set():
            return self._counted(one_pass)
        return self._wait(one_pass)

    async def _wait(self, first: MarkedPass | None) -> Answered:
        """Reads until it is enough; `first` is a pass that was not."""
        rows, wait_s = self._rows, max(self._wanted.max_wait_ms, 0) / 1000
        rows.end_wait()
        rows.poll = poll = LongPoll()
        poll.end_after(wait_s)
        try:
            one_pass = first or await self._read_again()
            while not (one_pass.is_enough or not wait_s or self._is_over(poll)):
                one_pass.drop()
                await self._until_worth_another(one_pass, poll)
                if self.is_overtaken:
                    break
                one_pass = await self._read_again()
            return self._counted(one_pass)
        finally:
            poll.cancel()
            if rows.poll is poll:
                rows.poll = None

    async def _read_again(self) -> MarkedPass:
        self._rows.woken.clear()
        one_pass = self.new_pass()
        if len(self._rows.marked) > ROWS_PER_TURN or not one_pass.read():
            one_pass = self.new_pass()
            await work_in_turns(one_pass.steps())
        return one_pass

    def _is_over(self, poll: LongPoll) -> bool:
        return poll.is_over or self._parts.stopping.is_set() or self.is_overtaken or not self._rows

    async def _until_worth_another(self, one_pass: MarkedPass, poll: LongPoll) -> None:
        """Returns when another pass may find enough, or when the wait is over; see `FetchPass.until_worth_another`."""
        rows, metrics = self._rows, self._parts.metrics
        enough_at = one_pass.appended_before + one_pass.missing_bytes()
        while not self._is_over(poll):
            woken = rows.woken.copy()
            rows.woken.clear()
            if woken and (metrics.bytes_appended_total >= enough_at or self._has_moved(woken)):
                return
            for row in woken:
                if row.partition is not None:
                    rows.watch(row, row.partition)
            if not poll.arrived.done():
                await poll.arrived
            poll.renew()

    def _has_moved(self, woken: list[FetchRow]) -> bool:
        """Whether a row that had an event would now be answered with an error."""
        if self._parts.logs.failure is not None:
            return True
        try:
            for row in woken:
                if row.partition is not None:
                    row.partition.check_leader(row.wanted.leader_epoch)
        except KafkaError:
            return True
        return False

    def _counted(self, one_pass: MarkedPass) -> Answered:
        self._parts.metrics.fetch_bytes_total += one_pass.size
        return self.taken(one_pass)
