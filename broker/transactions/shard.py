"""The transactional ids of one partition of `__transaction_state`: what their shard knows besides any other's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.decisions.transaction_steps import PARTITIONS_MAX
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metadata.producer_id_block import ProducerIdBlockError
from echoless.broker.network.request import CloseConnectionError
from echoless.broker.partitions.partition import Partition
from echoless.broker.state_topics.append_parts import AppendParts
from echoless.broker.state_topics.shard import Shard
from echoless.broker.state_topics.shard_state import ShardState
from echoless.broker.transactions.leaders_question import answered_to_leader
from echoless.broker.transactions.marker_queue import MarkerSource
from echoless.broker.transactions.noted import is_own_step, overtaken_step, own_step
from echoless.coordinators.events import AppendCommitted
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.coordinator import (
    IdRequest,
    MarkerOutcome,
    NeedProducerIds,
    ProducerIdsGiven,
    SendIdMarkers,
    SpareIdsOutdated,
    TransactionCoordinator,
)
from echoless.coordinators.transactions.effects import CloseConnection
from echoless.coordinators.transactions.events import (
    MarkerAnswered,
    MarkersWritten,
    PartitionDeleted,
)
from echoless.coordinators.transactions.joins import has_all, verified
from echoless.coordinators.transactions.requests import VerifyPartitions
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.transactions import TransactionAnswered, TransactionAsk

if TYPE_CHECKING:
    from echoless.broker.decisions.decisions import Note
    from echoless.broker.state_topics.held_requests import Answered
    from echoless.broker.transactions.marker_sender import MarkerSender
    from echoless.coordinators.transactions.requests import TransactionRequest

limited: Final = LimitedLog(logging.getLogger(__name__))

_NONE: Final = ErrorCode.NONE
_new: Final = tuple.__new__
"""Makes a named tuple in half the time of calling its class; see `protocol/known/__init__.py`."""
_ASK_AGAIN_S: Final = 1.0
"""Wait after which producer ids are asked for again, if there were none."""


class TransactionShardParts(NamedTuple):
    """The parts of the broker that all shards of transactional ids share."""

    new_coordinator: Callable[[int], TransactionCoordinator]
    """Called in a thread, with the number of the newest connection at the election."""
    appends: AppendParts
    reload: Callable[[TransactionShard], None]
    newest_connection: Callable[[], int]
    """A number at least as high as those of all connections so far."""
    next_producer_id: Callable[[], Awaitable[int]]
    """Raises `KafkaError` while there is none, `ProducerIdBlockError` if there will never be one."""
    markers: MarkerSender
    note: Note
    """Notes what a coordinator does by itself."""


class TransactionShard(Shard["TransactionCoordinator", IdRequest, TransactionAnswer]):
    """One leader epoch's transactional ids. Belongs to the event loop."""

    what = "transactional ids"

    def __init__(self, partition: Partition, parts: TransactionShardParts) -> None:
        self._shared = parts
        self._elected_connection = 0
        """The newest connection at the election: what older ones hold may have been answered by another coordinator."""
        if (
            partition.log.log_end_offset
        ):  # else there was none, and a client goes on with the connection that it has
            self._elected_connection = parts.newest_connection()
        self._topics_deleted = 0
        super().__init__(partition, parts.appends, parts.reload)

    def new_coordinator(self) -> TransactionCoordinator:
        return self._shared.new_coordinator(self._elected_connection)

    def refusal(self, request: IdRequest, code: ErrorCode) -> TransactionAnswer:  # noqa: ARG002 - all look alike
        return TransactionAnswer(code)

    def refusal_while_loading(self, request: IdRequest) -> TransactionAnswer:  # noqa: ARG002
        return TransactionAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def note_load(self, seconds: float | None) -> None:
        metrics = self.parts.metrics
        if seconds is None:
            metrics.transactional_id_load_failures_total += 1
            return
        metrics.transactional_id_loads_total += 1
        metrics.transactional_id_load_ms_total += round(seconds * 1000)

    def name_in(self, request: IdRequest) -> str:
        return request.transactional_id

    def step(self, event: Any) -> None:
        """Has the coordinator process an event; notes what it has done by itself once that is committed."""
        coordinator = self._coordinator
        if type(event) is not AppendCommitted or coordinator is None:
            super().step(event)
            return
        name = coordinator.stored_by(event.token)
        before = coordinator[name]
        super().step(event)
        after = coordinator[name]
        if before is None or after is None or after is before:
            return
        if is_own_step(before, after):
            now_ms, is_large = self.parts.wall_ms(), len(before.partitions) > PARTITIONS_MAX
            self._shared.note(own_step, name, before, after, now_ms, is_large=is_large)

    def perform_own(self, effect: SendIdMarkers | CloseConnection | NeedProducerIds) -> None:
        match effect:
            case SendIdMarkers(transactional_id, markers):
                place, epoch = self.partition.index, self._leadership.leader_epoch
                self._shared.markers.send(
                    MarkerSource(self, transactional_id, place, epoch), markers
                )
            case CloseConnection(reply_id):
                awaited = self._replies.take(reply_id)
                if awaited is not None:
                    now_ms = self.parts.wall_ms()
                    self._shared.note(overtaken_step, awaited.request, now_ms, is_large=True)
                    awaited.fail(_overtaken(awaited.request))
            case NeedProducerIds(wanted):
                self.begin(self._supply(wanted), "getting producer ids")

    def ask_about(
        self, transactional_id: str, request: TransactionRequest
    ) -> Answered[TransactionAnswer]:
        """Has the coordinator process a request about an id; see `ask`."""
        return self.ask(IdRequest(transactional_id, request))

    def look_for_leader(self, ask: TransactionAsk) -> TransactionAnswered | None:
        """Answers a leader that adds nothing; None if it has to wait."""
        coordinator = self._coordinator
        if coordinator is None or not self.answers_at_once:
            return None
        value, partitions = coordinator[ask.transactional_id], ask.partitions
        if value is not None and has_all(value, ask.producer_id, ask.producer_epoch, partitions):
            row = (_NONE, value.number, (_NONE,) * len(partitions))
            return _new(TransactionAnswered, row)
        request = VerifyPartitions(ask.producer_id, ask.producer_epoch, frozenset(partitions))
        return answered_to_leader(ask, verified(value, request))

    @property
    def is_over(self) -> bool:
        """Whether nothing that it has begun matters any more."""
        return self.state in (ShardState.LOST, ShardState.FAILED)

    def marker_answered(self, transactional_id: str, answered: MarkerAnswered) -> None:
        """Notes that a leader contradicts a marker."""
        self.deliver(MarkerOutcome(transactional_id, answered))

    def markers_written(self, transactional_id: str, written: MarkersWritten) -> None:
        """Notes markers that a leader has written."""
        self.deliver(MarkerOutcome(transactional_id, written))

    def partition_deleted(self, transactional_id: str, deleted: PartitionDeleted) -> None:
        """Notes that a partition needs no marker."""
        self.deliver(MarkerOutcome(transactional_id, deleted))

    def topic_deleted(self) -> None:
        """Gives the spare producer ids up: what is issued after a deletion is no producer of the deleted topic."""
        self._topics_deleted += 1
        self.deliver(SpareIdsOutdated())

    async def _supply(self, wanted: int) -> None:
        """Gets producer ids, however long that takes; none of them from before the last deletion of a topic."""
        found: list[int] = []
        deleted = self._topics_deleted
        while len(found) < wanted:
            if deleted != self._topics_deleted:
                found, deleted = [], self._topics_deleted
            try:
                found.append(await self._shared.next_producer_id())
            except (KafkaError, ProducerIdBlockError) as error:
                name = self.partition.name
                limited.log(logging.WARNING, name, "%s gets no producer ids: %s", name, error)
                await asyncio.sleep(_ASK_AGAIN_S)
        self.deliver(ProducerIdsGiven(tuple(found)))


def _overtaken(request: Any) -> CloseConnectionError:
    return CloseConnectionError(
        f"a request of transactional id {request.transactional_id!r} came on an older connection than "
        f"its session's newest, or than the election of this coordinator: it may be a copy of one that was answered"
    )
