"""The transactional ids that this broker coordinates: those of the partitions of `__transaction_state` it leads.

Handlers `ask` about an id; one that another broker coordinates is answered NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from echoless.broker.config.loading import Config
from echoless.broker.decisions.transaction_steps import PARTITIONS_MAX
from echoless.broker.metadata.topic import TopicChanged, TopicDeleted, TopicEvent
from echoless.broker.network.turns import work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.broker.state_topics.shard_state import ShardState
from echoless.broker.state_topics.shards import Shards
from echoless.broker.state_topics.topic import StateTopic
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.broker.decisions.decisions import Note
    from echoless.broker.state_topics.append_parts import AppendParts
    from echoless.broker.state_topics.held_requests import Answered
    from echoless.broker.transactions.coordinator_door import CoordinatorDoor
    from echoless.broker.transactions.marker_sender import MarkerSender
    from echoless.broker.transactions.shard import TransactionShard
    from echoless.coordinators.transactions.answers import TransactionAnswer
    from echoless.coordinators.transactions.coordinator import TransactionCoordinator
    from echoless.coordinators.transactions.requests import AddPartitions, TransactionRequest
    from echoless.coordinators.transactions.state import TransactionalIdState
    from echoless.protocol.native.find_transactions import TransactionsFound
    from echoless.protocol.native.transactions import (
        AnsweredNowOrLater,
        TransactionAnswered,
        TransactionAsk,
    )
    from echoless.protocol.state_records.transaction_records import TransactionValue


class TransactionService(Shards["TransactionShard"]):
    """The transactional ids of one broker. Belongs to the event loop."""

    def __init__(
        self,
        config: Config,
        topic: StateTopic,
        appends: AppendParts,
        *,
        newest_connection: Callable[[], int],
        next_producer_id: Callable[[], Awaitable[int]],
        new_sender: Callable[[], MarkerSender],
        new_door: Callable[[], CoordinatorDoor],
        version: Callable[[], int],
        note: Note,
    ) -> None:
        """`newest_connection`: a number above those of all connections so far; `version`: the generation that all brokers serve.

        `next_producer_id` raises `KafkaError` or `ProducerIdBlockError` if there is none. `new_sender` is called with the first shard,
        `new_door` with the first batch of a transaction on a partition of this broker, `note` with what makes each step of a
        transaction that no client's request has asked for (`Decisions.record_transaction`).
        """
        super().__init__(topic)
        self._config = config
        self._appends = appends
        self._newest_connection = newest_connection
        self._next_producer_id = next_producer_id
        self._new_sender = new_sender
        self._new_door = new_door
        self._version = version
        self._note = note
        self._markers: MarkerSender | None = None
        self._door: CoordinatorDoor | None = None

    # --- requests ---

    def ask(
        self, transactional_id: str, request: TransactionRequest
    ) -> Answered[TransactionAnswer]:
        """Has the id's coordinator process the request. Raises `CloseConnectionError`, now or when the answer is awaited."""
        shard = self.shard_of(transactional_id) if transactional_id else None
        if shard is not None:
            return shard.ask_about(transactional_id, request)
        from echoless.coordinators.transactions.answers import TransactionAnswer

        return TransactionAnswer(self._refusal(transactional_id, request))

    def _refusal(self, transactional_id: str, request: TransactionRequest) -> ErrorCode:
        """The error of a broker that does not coordinate the id; as Kafka does, it first says what makes no sense anywhere."""
        from echoless.broker.transactions.new_coordinator import transaction_config
        from echoless.coordinators.transactions.initialisations import init_error
        from echoless.coordinators.transactions.requests import InitTransactionalId

        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        error = ErrorCode.NONE
        if isinstance(request, InitTransactionalId):
            error = init_error(request, transaction_config(self._config, self._version()))
        return error or ErrorCode.NOT_COORDINATOR

    async def answer(self, ask: TransactionAsk) -> TransactionAnswered:
        """Answers a leader, of this broker or of another: adds partitions to a transaction, or looks at it."""
        from echoless.broker.transactions.leaders_question import answered_to_leader, request_of
        from echoless.coordinators.transactions.requests import AddPartitions

        request = request_of(ask)
        answered = self.ask(ask.transactional_id, request)
        answer = await answered if isinstance(answered, Awaitable) else answered
        if isinstance(request, AddPartitions):
            self._note_added(ask.transactional_id, request, answer)
        return answered_to_leader(ask, answer)

    def _note_added(
        self, transactional_id: str, request: AddPartitions, answer: TransactionAnswer
    ) -> None:
        from echoless.broker.transactions.noted import added_step, begins

        state = self.look_at(transactional_id)
        is_first = not isinstance(state, ErrorCode) and begins(request, state.value)
        self._note(
            *(added_step, transactional_id, request, answer, self._appends.wall_ms(), is_first),
            is_large=len(request.partitions) > PARTITIONS_MAX,
        )

    def look_for_leader(self, ask: TransactionAsk) -> TransactionAnswered | None:
        """Answers a leader that adds nothing, as `answer` would; None if it has to wait, or is not for this broker."""
        shard = self.shard_of(ask.transactional_id) if ask.transactional_id else None
        return None if shard is None else shard.look_for_leader(ask)

    def ask_coordinator(self, ask: TransactionAsk) -> AnsweredNowOrLater:
        """Asks the id's coordinator, wherever it is, for a partition that this broker leads. A future never raises."""
        if self._door is None:
            self._door = self._new_door()
        return self._door.ask(ask)

    def look_at(self, transactional_id: str) -> TransactionalIdState | ErrorCode:
        """The state of an id, or the reason why there is none: TRANSACTIONAL_ID_NOT_FOUND, or an error of the coordinator."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        shard = self.shard_of(transactional_id)
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        if shard.coordinator is not None:
            state = shard.coordinator.state_of(transactional_id)
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if state is None else state
        if shard.state is ShardState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def all(self) -> Iterator[tuple[str, TransactionValue]]:
        """Every id with its last committed record, for a caller that takes turns."""
        for shard in list(self.shards.values()):
            if shard.coordinator is not None:
                yield from shard.coordinator.all()

    async def find_open(self, producer_ids: Sequence[int]) -> TransactionsFound:
        """Finds the transactions of these producers that have not ended, among the ids that this broker coordinates, in turns."""
        from echoless.protocol.native.find_transactions import ProducerPartition, TransactionsFound
        from echoless.protocol.state_records.transaction_records import TransactionStatus

        ended = (
            TransactionStatus.EMPTY,
            TransactionStatus.COMPLETE_COMMIT,
            TransactionStatus.COMPLETE_ABORT,
        )
        wanted, found = frozenset(producer_ids), set[ProducerPartition]()
        known = {
            index: shard for index, shard in self.shards.items() if shard.coordinator is not None
        }

        def look() -> Iterator[None]:
            for shard in known.values():
                if shard.coordinator is not None:
                    for _, value in shard.coordinator.all():
                        if value.producer_id in wanted and value.status not in ended:
                            found.update(
                                ProducerPartition(value.producer_id, one.topic, one.partition)
                                for one in value.partitions
                            )
                        yield

        await work_in_turns(look())
        still = [one for one, shard in known.items() if self.shards.get(one) is shard]
        return TransactionsFound(frozenset(still), frozenset(found))

    @property
    def missing_markers(self) -> int:
        """Markers that are on their way to leaders."""
        return 0 if self._markers is None else len(self._markers)

    @property
    def longest_marker_wait_s(self) -> float:
        """Seconds for which the oldest of them has been missing; 0 without one."""
        return 0.0 if self._markers is None else self._markers.longest_wait_s

    # --- shards ---

    def new_shard(self, partition: Partition) -> TransactionShard:
        from echoless.broker.transactions.shard import TransactionShard, TransactionShardParts

        if self._markers is None:
            self._markers = self._new_sender()
        parts = TransactionShardParts(
            self._new_coordinator,
            self._appends,
            self.reload,
            self._newest_connection,
            self._next_producer_id,
            self._markers,
            self._note,
        )
        return TransactionShard(partition, parts)

    def _new_coordinator(self, elected_connection: int) -> TransactionCoordinator:
        from echoless.broker.transactions.new_coordinator import new_coordinator

        return new_coordinator(self._config, elected_connection, self._version())

    def on_topic_event(self, event: TopicEvent) -> None:
        """Sends markers again that wait for a topic's leaders; gives spare producer ids up when a topic is deleted."""
        if self._markers is None:
            return
        if isinstance(event, TopicDeleted):
            for shard in list(self.shards.values()):
                shard.topic_deleted()
            self._markers.topic_changed(event.topic.name)
        elif isinstance(event, TopicChanged):
            self._markers.topic_changed(event.after.name)
        else:
            self._markers.topic_changed(event.topic.name)

    async def close(self) -> None:
        """Stops coordinating."""
        await super().close()
        if self._markers is not None:
            await self._markers.close()
        if self._door is not None:
            await self._door.close()
