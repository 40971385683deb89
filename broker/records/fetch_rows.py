"""The partitions that a client fetches from again and again, and which of them have to be looked at.

A row is *level* when its next answer would be empty and say nothing new; it then waits with its partition for the
next event, which marks it. Only marked rows are looked at, so that what lies idle costs nothing:

| event | marks |
|---|---|
| the high watermark or the log start moves, a role changes, the partition goes, the broker stops | the partition's rows |
| the client names the row | the row |
| the row was answered with records or an error, or was cut short | it stays marked |
| the client reads at another isolation level, or the rights of anyone change | all rows of the client |

Invariant: a row that is not marked waits with its partition (`Waiters.data`), and is level.
Invariant: the row waits with it from the step in which it was read, so that no event falls between.

Pure but for what it calls: knows nothing of requests, answers and sockets. Belongs to one event loop.
Called by `fetch_sessions.py`, `repeated_fetch.py` and `marked_fetch.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from echoless.protocol.fetch_request import FetchPartition

if TYPE_CHECKING:
    from echoless.broker.partitions.long_poll import LongPoll
    from echoless.broker.partitions.partition import Partition

RowKey = tuple[str | uuid.UUID, int]
"""The topic as the client names it, and the partition."""
UNKNOWN: Final = -1


class FetchRow:
    """A partition that a client fetches from; an `EventWaiter` of it."""

    __slots__ = (
        "high_watermark",
        "log_start_offset",
        "name",
        "partition",
        "place",
        "rows",
        "topic",
        "wanted",
    )

    def __init__(
        self, rows: FetchRows, topic: str | uuid.UUID, wanted: FetchPartition, place: int
    ) -> None:
        self.rows = rows
        self.topic = topic
        self.wanted = wanted
        """The partition, offset and limits, as the client named them last."""
        self.place = place
        """Determines the order in which rows are read."""
        self.name = topic if isinstance(topic, str) else None
        """The topic's name; None until its id has been known."""
        self.partition: Partition | None = None
        """The partition that it waits with."""
        self.high_watermark = UNKNOWN
        """The value that was answered last, like the log start offset."""
        self.log_start_offset = UNKNOWN

    @property
    def key(self) -> RowKey:
        return self.topic, self.wanted.partition

    def done(self) -> bool:
        """False: every event marks the row."""
        return False

    def set_result(self, _result: Any) -> None:
        """Takes note of an event of the partition, which does not hold the row any more."""
        self.rows.wake(self)


class FetchRows:
    """The rows of one client, in an order of their own."""

    __slots__ = ("_next_place", "_terms", "by_key", "marked", "poll", "uncommitted", "woken")

    _new_row = FetchRow
    """The kind of rows."""

    def __init__(self) -> None:
        self.by_key: dict[RowKey, FetchRow] = {}
        self.marked: dict[FetchRow, None] = {}
        """The rows that have to be looked at."""
        self.uncommitted: dict[FetchRow, None] = {}
        """Rows that are not marked, and have records beyond what the client may read yet."""
        self.woken: list[FetchRow] = []
        """The rows with an event since this list was last cleared."""
        self.poll: LongPoll | None = None
        """The wait of the client's request."""
        self._next_place = 0
        self._terms: object = None

    def __len__(self) -> int:
        return len(self.by_key)

    def name_row(self, topic: str | uuid.UUID, wanted: FetchPartition) -> FetchRow:
        """Adds a row at the end, or changes one, which keeps its place."""
        key = topic, wanted.partition
        row = self.by_key.get(key)
        if row is None:
            row = self.by_key[key] = self._new_row(self, topic, wanted, self._next_place)
            self._next_place += 1
        else:
            row.wanted = wanted
        self.mark(row)
        return row

    def forget(self, key: RowKey) -> None:
        """Drops a row, if there is one."""
        row = self.by_key.pop(key, None)
        if row is not None:
            self.marked.pop(row, None)
            self.uncommitted.pop(row, None)
            _leave(row)

    def close(self) -> None:
        """Drops all rows; a request that waits is answered with nothing more."""
        for row in self.by_key.values():
            _leave(row)
        for rows in (self.by_key, self.marked, self.uncommitted):
            rows.clear()
        self.end_wait()

    def move_to_end(self, row: FetchRow) -> None:
        """Lets all other rows be read before this one."""
        row.place = self._next_place
        self._next_place += 1

    # --- marks ---

    def mark(self, row: FetchRow) -> None:
        """Has the row looked at; nothing changes if it is marked."""
        self.marked[row] = None
        if row in self.uncommitted:
            del self.uncommitted[row]

    def wake(self, row: FetchRow) -> None:
        """Marks a row that has had an event, and ends the wait of the client's request."""
        self.mark(row)
        self.woken.append(row)
        self.end_wait()

    def end_wait(self) -> None:
        """Lets the request that waits look again."""
        if self.poll is not None and not self.poll.arrived.done():
            self.poll.arrived.set_result(None)

    def mark_all_under(self, terms: object) -> None:
        """Marks all rows if they were looked at under other terms before."""
        if self._terms != terms:
            self._terms = terms
            self.marked = dict.fromkeys(self.by_key.values())
            self.uncommitted.clear()

    def in_order(self) -> Iterable[FetchRow]:
        """The marked rows in the order in which they are to be read."""
        if len(self.marked) < 2:
            return tuple(self.marked)
        return sorted(self.marked, key=_place)

    def watch(self, row: FetchRow, partition: Partition) -> None:
        """Has the partition's next event mark the row, to be called in the step in which it is read."""
        if row.partition is not partition:
            _leave(row)
            row.partition = partition
        partition.waiters.data.add(row)

    def unwatch(self, row: FetchRow) -> None:
        """Lets the row wait for nothing: it was answered with an error, and stays marked."""
        _leave(row)

    def take_off(self, row: FetchRow, *, has_uncommitted: bool) -> None:
        """Takes the mark off a row that is watched, and owed nothing."""
        self.marked.pop(row, None)
        if has_uncommitted:
            self.uncommitted[row] = None


def _place(row: FetchRow) -> int:
    return row.place


def _leave(row: FetchRow) -> None:
    if row.partition is not None:
        row.partition.waiters.data.remove(row)
        row.partition = None
