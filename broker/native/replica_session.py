"""Fetches by difference: what a leader keeps of each partition for one follower, and answers from.

A session has a row for each partition that its follower has named in it. A row is in one of three states:

| state | means | held by |
|---|---|---|
| LEVEL | the follower has said that it has all of the leader's log, and nothing was appended since | `Waiters.append` of the partition |
| OWED | there is, or may be, something to send | `Session._owed`, in the order of their turns |
| SENT | batches were sent; nothing more is before the follower names the row again | the session alone |

    named -> LEVEL or OWED        LEVEL -> OWED: append, end of the role, change of the replicas        OWED -> SENT: batches were sent
    any state -> out, answered: an error, a divergence, or no batches after all (the follower names the partition again when it is due)
    any state -> out, unanswered: the follower forgets it; the session ends

Beside that, a row that does not know the high watermark or the log start is in `Session._quiet`; those travel with
the next answer, and end no wait. A row that knows both is held by `Waiters.progress` of its partition. So an event
marks the rows of its partition, at most one for each follower, and an answer looks at marked rows alone.

A follower's silence about a LEVEL row says that it still has all of the log. It counts as a fetch at the time of the session's last
message (`Partition.note_silence`), and is noted before that ceases to be true: when the row is woken or dropped.

Called by `replica_sessions.py`, which says which messages count.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from echoless.broker.native.replica_pass import BYTES_MAX
from echoless.broker.network.promise import Promise
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.deadlines import Deadlines
from echoless.broker.replication.leader import fetch_as_replica, read_further
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.replica_fetch_answer import SessionAnswer
from echoless.protocol.native.replica_session import (
    FetchedRow,
    NamedRow,
    SessionFetch,
)
from echoless.protocol.native.replication import ReplicaFetched, ReplicaWanted
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from echoless.broker.services import Services

ROWS_MAX: Final = 500
"""Rows of one answer, besides those that its message named."""


class Row:
    """One partition of a session."""

    __slots__ = ("known", "leader_epoch", "number", "offset", "partition", "session")

    def __init__(
        self, session: Session, number: int, partition: Partition, wanted: ReplicaWanted
    ) -> None:
        self.session = session
        self.number = number
        self.partition = partition
        self.leader_epoch = wanted.leader_epoch
        self.offset = wanted.offset
        """The follower has everything below."""
        self.known = (-1, -1)
        """The high watermark and the log start that the follower was last sent."""

    def done(self) -> bool:
        """Whether no event matters any more, as `EventWaiter`."""
        return False

    def set_result(self, _: None) -> None:
        """Becomes OWED: called by `Waiters.append`, in which a row is only while it is LEVEL."""
        self._note_silence()
        self.session.owe(self)

    def note_progress(self) -> None:
        """Called by `Waiters.progress`."""
        self.session.note_quiet(self)

    def await_append(self) -> None:
        """Becomes LEVEL."""
        self.partition.waiters.append.add(self)

    def learn(self, found: ReplicaFetched) -> None:
        """Notes what is sent; the next change of it is to be sent as well."""
        self.known = found.high_watermark, found.log_start_offset
        self.partition.waiters.progress[self] = None

    def withdraw(self) -> None:
        """Leaves the waiters of its partition."""
        waiters = self.partition.waiters
        if self in waiters.append:
            self._note_silence()
            waiters.append.remove(self)
        waiters.progress.pop(self, None)

    def _note_silence(self) -> None:
        session = self.session
        self.partition.note_silence(
            session.broker_id,
            session.broker_epoch,
            self.leader_epoch,
            self.offset,
            session.heard_s,
        )


class Session:
    """The rows that one follower has named, and those in which it is owed something. Belongs to one event loop."""

    def __init__(self, message: SessionFetch, services: Services, *, counts: bool) -> None:
        self.broker_id = message.broker_id
        self.broker_epoch = message.broker_epoch
        self.number = message.session
        self.key = message.key
        self.next_epoch = 0
        """The epoch of the next message."""
        self.counts = counts
        """Whether the broker epoch is the one that is registered, so that what the follower says counts."""
        self.heard_s = 0.0
        """When the last message came, in the loop's time."""
        self.wait: SessionWait | None = None
        self._services = services
        self.rows: dict[int, Row] = {}
        """By the numbers that the follower gave them."""
        self._row_of: dict[Partition, Row] = {}
        """The same rows: a partition has one, whatever numbers it is named by."""
        self._owed: OrderedDict[Row, None] = OrderedDict()
        self._quiet: OrderedDict[Row, None] = OrderedDict()

    # --- marks ---

    def owe(self, row: Row) -> None:
        """Makes the row OWED, the last one in turn, and ends the wait."""
        self._owed[row] = None
        self.wake()

    def note_quiet(self, row: Row) -> None:
        """Has the row's high watermark and log start sent with the next answer."""
        self._quiet[row] = None

    def wake(self) -> None:
        """Ends the wait, if there is one: the answer is taken at the end of this step of the loop."""
        if self.wait is not None:
            self.wait.end()

    # --- rows ---

    def take(self, message: SessionFetch) -> list[FetchedRow]:
        """Notes what the follower says; returns the errors and divergences among its rows."""
        self.next_epoch = message.session_epoch + 1
        for number in message.forgotten:
            row = self.rows.get(number)
            if row is not None:
                self._drop(row)
        news = []
        for named in message.named:
            found = self._name(named)
            if found is not None:
                news.append(FetchedRow(named.number, found))
        self.heard_s = (
            asyncio.get_running_loop().time()
        )  # not before: the rows that went were not silent
        return news

    def _name(self, named: NamedRow) -> ReplicaFetched | None:
        """Compares the logs and notes how far the follower is; an error or a divergence leaves the row out."""
        number, wanted = named
        before = self.rows.get(number)
        if before is not None:
            self._drop(before)
        try:
            partition = self._services.partitions.find(wanted.topic_id, wanted.partition)
            found = fetch_as_replica(
                partition,
                self.broker_id,
                self.broker_epoch,
                wanted.leader_epoch,
                wanted.offset,
                wanted.last_epoch,
                0,  # its batches have their turn, as those of the other rows have
            )
        except (KafkaError, StorageError) as error:
            return self._failed(error)
        if found.diverging is not None:
            return found
        other = self._row_of.get(partition)
        if other is not None:
            self._drop(other)
        row = Row(self, number, partition, wanted)
        self.rows[number] = self._row_of[partition] = row
        if wanted.offset == partition.log.log_end_offset:
            row.await_append()
        else:
            self._owed[row] = None
        knows = before.known if before is not None and before.partition is partition else None
        if knows == (found.high_watermark, found.log_start_offset):
            row.learn(found)
        else:
            self._quiet[row] = None
        return None

    def _drop(self, row: Row) -> None:
        row.withdraw()
        del self.rows[row.number], self._row_of[row.partition]
        self._owed.pop(row, None)
        self._quiet.pop(row, None)

    def end(self) -> None:
        """Forgets all rows, noting what silence has said; a wait is answered with nothing."""
        for row in self.rows.values():
            row.withdraw()
        self.rows.clear()
        self._row_of.clear()
        self._owed.clear()
        self._quiet.clear()
        self.wake()

    # --- answers ---

    @property
    def owes_much(self) -> bool:
        """Whether there is something that the follower should get at once."""
        return bool(self._owed) or len(self._quiet) > ROWS_MAX

    def answer(self, news: list[FetchedRow], bytes_max: int) -> SessionAnswer:
        """`news`, and what the session owes, as far as it fits."""
        self.wait = None
        sent = self._drain_owed(min(bytes_max, BYTES_MAX))
        sent += self._drain_quiet()
        return SessionAnswer(self.number, [*news, *sent])

    def _drain_owed(self, bytes_max: int) -> list[FetchedRow]:
        """Batches, row by row in turn; the first one that finds no room begins the next answer."""
        rows: list[FetchedRow] = []
        left = bytes_max
        while self._owed and left > 0 and len(rows) < ROWS_MAX:
            row = next(iter(self._owed))
            found = self._read_owed(row, left)
            size = len(found.batches)
            if size > left and left < bytes_max:  # only the first batch may exceed it
                break
            left -= size
            self._owed.pop(row, None)
            if found.error is not ErrorCode.NONE:
                rows.append(FetchedRow(row.number, found))
                continue
            self._quiet.pop(row, None)
            row.learn(found)
            rows.append(FetchedRow(row.number, found))
        return rows

    def _drain_quiet(self) -> list[FetchedRow]:
        rows: list[FetchedRow] = []
        while self._quiet and len(rows) < ROWS_MAX:
            row, _ = self._quiet.popitem(last=False)
            found = self._read(row, 0)
            if found.error is ErrorCode.NONE:
                row.learn(found)
            rows.append(FetchedRow(row.number, found))
        return rows

    def _read_owed(self, row: Row, bytes_max: int) -> ReplicaFetched:
        """Batches for the row, or an error.

        A row that was woken by something else than an append is out: what the leader had noted of the follower may be
        gone, as after a change of the replicas, so the follower has to say it again.
        """
        found = self._read(row, bytes_max)
        if found.error is ErrorCode.NONE and not found.batches:
            self._drop(row)
            return ReplicaFetched(ErrorCode.REPLICA_NOT_AVAILABLE)
        return found

    def _read(self, row: Row, bytes_max: int) -> ReplicaFetched:
        """The partition's news for the row; with an error, the row is out."""
        try:
            return read_further(row.partition, row.leader_epoch, row.offset, bytes_max)
        except (KafkaError, StorageError) as error:
            self._drop(row)
            return self._failed(error)

    def _failed(self, error: KafkaError | StorageError) -> ReplicaFetched:
        if isinstance(error, KafkaError):
            return ReplicaFetched(error.code)
        self._services.fail_storage(error)
        return ReplicaFetched(ErrorCode.KAFKA_STORAGE_ERROR)


class SessionWait(Promise):
    """A message that the next mark of its session answers, or its deadline."""

    __slots__ = ("_bytes_max", "_deadlines", "_session", "_tick")

    waits_for_others = True

    def __init__(
        self, session: Session, bytes_max: int, deadlines: Deadlines, seconds: float
    ) -> None:
        super().__init__()
        self._session = session
        self._bytes_max = bytes_max
        self._deadlines = deadlines
        self._tick = deadlines.add(self, seconds)
        session.wait = self

    def end(self) -> None:
        """Makes the answer ready, once."""
        if not self.is_ready:
            self._deadlines.discard(self, self._tick)
            self._become_ready()

    def expire(self) -> None:
        """The deadline has passed: the answer is what there is."""
        if not self.is_ready:
            self._become_ready()

    def abandon(self) -> None:
        """The connection has ended, and the session with it. Does nothing once the answer is ready."""
        if not self.is_ready:
            self._deadlines.discard(self, self._tick)
            self._session.wait = None
            self._session.end()

    def _result(self) -> SessionAnswer:
        return self._session.answer([], self._bytes_max)
