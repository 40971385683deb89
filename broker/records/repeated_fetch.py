"""Fetches without a session by a client that names the same partitions each time: librdkafka, sarama, kafkajs, aiokafka.

Nearly every row of such a request is one of the request before, perhaps in another order, and its outcome is the same:
nothing. The rows are kept with the connection, marked as in a session (`fetch_rows.py`), and each keeps the bytes that
answered it last. A request looks at marked rows only; the answer has the bytes of all.

| what could make kept bytes wrong | why it does not |
|---|---|
| an event of the partition, a change of its role | marks the row |
| another offset, limit or epoch | is another row |
| another version or isolation level | marks all rows |
| rights | the gate asks for each topic, each time, and leaves out what is denied |
| two requests of the connection at the same time | the second is answered without the rows |

Rows that a request does not name any more are dropped, and all of them with the connection. `ROWS_MAX` bounds them over all
connections; beyond it, and for fewer than `ROWS_MIN` rows, a request is answered in the general way (`fetch.py`).

Called by `broker/handlers/fetch.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Iterable, Iterator
from itertools import chain, islice
from typing import Final, TypeVar

from echoless.broker.network.request import Peer
from echoless.broker.network.turns import ROWS_PER_TURN, work_in_turns
from echoless.broker.records.fetch import MIN_BYTES_MAX
from echoless.broker.records.fetch_parts import FetchParts
from echoless.broker.records.fetch_rows import FetchRow, FetchRows
from echoless.broker.records.marked_fetch import MarkedFetch, MarkedPass
from echoless.protocol.fetch import PackedTopic, PartitionFetched, join_rows, pack_row
from echoless.protocol.fetch_request import FetchPartition, FetchRequest

ROWS_MIN: Final = 16
"""Fewer rows are read in less time than they are compared."""
ROWS_MAX: Final = 100_000
"""Rows of all connections, at about 750 bytes each."""

Body = bytes | list[bytes]
"""The body of an answer, in buffers if it is large."""
_BodyOrNone = TypeVar("_BodyOrNone", bound=Body | None)


class RepeatedRow(FetchRow):
    """A row, and the bytes that answered it when it was level."""

    __slots__ = ("packed",)
    packed: bytes


class RepeatedRows(FetchRows):
    """The rows of one connection's last request."""

    __slots__ = ("_by_wanted", "_parts", "is_busy", "is_closed", "order")
    _new_row = RepeatedRow
    by_key: dict[tuple[str | uuid.UUID, int], RepeatedRow]  # type: ignore[assignment]

    def __init__(self, parts: FetchParts) -> None:
        super().__init__()
        self.order: list[tuple[str | uuid.UUID, list[RepeatedRow]]] = []
        """The rows as the request lists them."""
        self.is_busy = False
        """Whether a request with these rows waits."""
        self.is_closed = False
        self._parts = parts
        self._by_wanted: dict[str | uuid.UUID, dict[FetchPartition, RepeatedRow]] = {}

    def close(self) -> None:
        """Drops all rows for good: the connection has ended."""
        self.is_closed = True
        self._drop_all()

    def _drop_all(self) -> None:
        self._parts.repeated_rows -= len(self)
        super().close()
        self._by_wanted.clear()
        self.order = []

    def repeats(self, wanted: FetchRequest) -> bool:
        """Whether all rows of the request are known; puts them into its order."""
        by_wanted = self._by_wanted
        try:
            self.order = [
                (topic, list(map(by_wanted[topic].__getitem__, partitions)))
                for topic, partitions in wanted.topics
            ]
        except KeyError:
            return False
        return True

    def adopt(self, wanted: FetchRequest) -> Iterator[None]:
        """Adds and changes the rows of the request that are not known, one per step."""
        for topic, partitions in wanted.topics:
            for one in partitions:
                if self.is_closed:
                    return
                known = self._by_wanted.setdefault(topic, {})
                if one not in known:
                    changed = self.by_key.get((topic, one.partition))
                    if changed is None:
                        self._parts.repeated_rows += 1
                    else:
                        del known[changed.wanted]
                    self.name_row(topic, one)
                    known[one] = self.by_key[topic, one.partition]
                    yield

    def follow(self) -> bool:
        """Drops the rows that the request does not name any more.

        Returns False, without rows, if the request names one twice, or all connections together have too many.
        """
        order = self.order
        everyone = set(chain.from_iterable(rows for _, rows in order))
        if len(everyone) != len(self):
            for row in [row for row in self.by_key.values() if row not in everyone]:
                self._drop(row)
        named = sum(len(rows) for _, rows in order)
        if len(everyone) != named or self._parts.repeated_rows > ROWS_MAX:
            self._drop_all()
            return False
        return True

    def _drop(self, row: RepeatedRow) -> None:
        known = self._by_wanted[row.topic]
        del known[row.wanted]
        if not known:
            del self._by_wanted[row.topic]
        self.forget(row.key)
        self._parts.repeated_rows -= 1

    def in_order(self) -> Iterable[FetchRow]:
        """The marked rows as the request lists them."""
        if len(self.marked) < 2:
            return tuple(self.marked)
        marked = self.marked
        return [row for _, rows in self.order for row in rows if row in marked]


class _RepeatedPass(MarkedPass):
    __slots__ = ("_version", "with_records")

    def __init__(
        self, parts: FetchParts, wanted: FetchRequest, peer: Peer, rows: RepeatedRows, version: int
    ) -> None:
        super().__init__(parts, wanted, peer, rows)
        self._version = version
        self.with_records: dict[RepeatedRow, tuple[bytes, ...]] = {}
        """The bytes of rows with records, which their rows do not keep."""

    def row_found(self, row: FetchRow) -> PartitionFetched | None:
        assert isinstance(row, RepeatedRow)
        found = self.look(row.topic, row.wanted)
        if found is not None:
            pieces = pack_row(self._version, found)
            if len(pieces) == 1:
                row.packed = pieces[0]
            else:
                self.with_records[row] = pieces
        return found

    def is_settled(self, row: FetchRow, found: PartitionFetched) -> bool:  # noqa: ARG002 - a session's
        return found.diverging_epoch is None

    def drop(self) -> None:
        super().drop()
        self.with_records.clear()

    @property
    def is_enough(self) -> bool:
        """Whether the client need not wait for more."""
        size = self.size
        return size >= self._wanted.min_bytes or size >= MIN_BYTES_MAX or self.has_error


class _RepeatedFetch(MarkedFetch[Body]):
    """One request of a connection that keeps its rows."""

    def __init__(
        self, parts: FetchParts, wanted: FetchRequest, peer: Peer, rows: RepeatedRows, version: int
    ) -> None:
        super().__init__(parts, wanted, peer, rows)
        self._repeated = rows
        self._version = version

    def new_pass(self) -> _RepeatedPass:
        return _RepeatedPass(self._parts, self._wanted, self._peer, self._repeated, self._version)

    def taken(self, one_pass: MarkedPass) -> Body:
        """The bytes of all rows, and the records of those that have some."""
        assert isinstance(one_pass, _RepeatedPass)
        found = one_pass.with_records
        topics: list[PackedTopic] = []
        for topic, rows in self._repeated.order:
            if not found:
                pieces = [row.packed for row in rows]
            else:
                pieces = []
                for row in rows:
                    if row in found:
                        pieces += found[row]
                    else:
                        pieces.append(row.packed)
            topics.append((topic, len(rows), pieces))
        hints = [one.leader for _, one in one_pass.found if one.leader is not None]
        return join_rows(self._version, topics, one_pass.size, hints)


def fetch_repeated(
    parts: FetchParts, wanted: FetchRequest, peer: Peer, version: int
) -> Body | Awaitable[Body | None] | None:
    """The answer, at once or after a wait; None if the rows of the connection are of no use for it."""
    rows: RepeatedRows | None = peer.fetch_rows
    if rows is None:
        rows = RepeatedRows(parts)
        if not peer.keep(rows):
            return None
    if rows.is_busy:
        return None
    if not rows.repeats(wanted):
        steps = rows.adopt(wanted)
        if sum(1 for _ in islice(steps, ROWS_PER_TURN)) == ROWS_PER_TURN:
            rows.is_busy = True
            return _later(rows, _adopted(steps, parts, wanted, peer, rows, version))
    answer = _answer(parts, wanted, peer, rows, version)
    if isinstance(answer, Awaitable):
        rows.is_busy = True
        return _later(rows, answer)
    return answer


def _answer(
    parts: FetchParts, wanted: FetchRequest, peer: Peer, rows: RepeatedRows, version: int
) -> Body | Awaitable[Body] | None:
    if not rows.repeats(wanted) or not rows.follow():
        return None
    rows.mark_all_under((version, wanted.isolation_level))
    return _RepeatedFetch(parts, wanted, peer, rows, version).answer()


async def _adopted(  # noqa: PLR0917 - a part of `fetch_repeated`
    steps: Iterator[None],
    parts: FetchParts,
    wanted: FetchRequest,
    peer: Peer,
    rows: RepeatedRows,
    version: int,
) -> Body | None:
    """Goes on with a request of so many new rows that others have turns in between."""
    await work_in_turns(steps)
    answer = _answer(parts, wanted, peer, rows, version)
    return await answer if isinstance(answer, Awaitable) else answer


async def _later(rows: RepeatedRows, answer: Awaitable[_BodyOrNone]) -> _BodyOrNone:
    try:
        return await answer
    finally:
        rows.is_busy = False
