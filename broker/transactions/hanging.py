"""Hanging transactions: open at a partition's leader, and unknown to every coordinator. The leader aborts them (KAFKA-18957).

A transaction holds readers of committed records back until its marker comes. If its coordinator does not know of it, none will:
a batch came through by a bug or from a broker that did not ask, a state log was lost, or the marker was cut off in an unclean
election. In Kafka an administrator has to find that out.

    1 a producer with an open transaction has appended nothing here for the longest timeout, and five minutes more
    2 the coordinators of all partitions of `__transaction_state` are asked for transactions of it that have not ended
    3 all have answered, each for all of its ids, and none has this partition in such a transaction
    4 its state here is still the same: it has appended nothing meanwhile, and this broker has led all the time
      -> an abort marker in the producer's epoch, without a number, and a line in the log

If any coordinator is away, or still loads, nothing is done until the next round. A coordinator adds a partition before its
first batch is appended, so a transaction that begins after its answer, and before the marker, has no batch here to lose.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from echoless.broker.clock import Clock
from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.network.turns import work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.markers import NO_STATE_PARTITION, MarkerWriter
from echoless.broker.replication.peer_connection import PeerError
from echoless.broker.transactions.service import TransactionService
from echoless.protocol.control_records import NO_NUMBER
from echoless.protocol.dedup import ProducerEntry
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.native.find_transactions import (
    FindTransactions,
    ProducerPartition,
    TransactionsFound,
    read_transactions_found,
)
from echoless.protocol.native.transactions import TransactionMarker
from echoless.protocol.state_records.transaction_records import TransactionPartition

logger: Final = logging.getLogger(__name__)

INTERVAL_S: Final = 60.0
SLACK_MS: Final = 5 * 60 * 1000
"""Time beyond the longest timeout, in which a coordinator should have ended the transaction."""
ANSWERED_S: Final = 10.0
_SUSPECTS_MAX: Final = 1000
"""Transactions that are asked about in one round; the rest is in the next ones."""
Key = tuple[str, int]


class Suspect(NamedTuple):
    """A transaction that is open for too long, and what is known of its producer."""

    partition: Partition
    leader_epoch: int
    producer_id: int
    first_offset: int
    entry: ProducerEntry

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing has happened to it, and this broker has led all the time."""
        partition, producers = self.partition, self.partition.log.producers
        return (
            partition.is_leader
            and partition.leader_epoch == self.leader_epoch
            and producers.open_transaction(self.producer_id) == self.first_offset
            and producers.get(self.producer_id) == self.entry
        )


class CoordinatorsQuestion:
    """Asks all coordinators of the cluster about producers."""

    def __init__(
        self, broker_id: int, cluster: ClusterMembership, transactions: TransactionService
    ) -> None:
        self._broker_id = broker_id
        self._cluster = cluster
        self._transactions = transactions

    async def open_of(self, producer_ids: Sequence[int]) -> frozenset[ProducerPartition] | None:
        """The partitions in transactions of these producers that have not ended; None if not all coordinators have answered."""
        topic = self._transactions.topic
        count = topic.partition_count
        if count is None:
            return None
        try:
            leaders = [topic.leader_of(index) for index in range(count)]
            found = {one: await self._ask(one, producer_ids) for one in sorted(set(leaders))}
        except (KafkaError, PeerError, DecodeError) as error:
            logger.info("not all coordinators of transactions have answered: %s", error)
            return None
        if topic.partition_count != count or not all(
            index in found[leader].state_partitions for index, leader in enumerate(leaders)
        ):
            return None
        return frozenset().union(*[one.open for one in found.values()])

    async def _ask(self, broker_id: int, producer_ids: Sequence[int]) -> TransactionsFound:
        if broker_id == self._broker_id:
            return await self._transactions.find_open(producer_ids)
        message = FindTransactions(self._broker_id, producer_ids).to_message()
        answer = await self._cluster.ask(broker_id, message, timeout_s=ANSWERED_S)
        return read_transactions_found(answer)


class HangingTransactions:
    """Finds and aborts the hanging transactions of the partitions that this broker leads. Belongs to the event loop."""

    def __init__(
        self,
        held: Mapping[Key, Partition],
        clock: Clock,
        question: CoordinatorsQuestion,
        markers: MarkerWriter,
        *,
        timeout_max_ms: int,
    ) -> None:
        """`timeout_max_ms`: the longest timeout of a transaction."""
        self._held = held
        self._clock = clock
        self._question = question
        self._markers = markers
        self._patience_ms = timeout_max_ms + SLACK_MS
        self._watched: dict[Key, None] = {}
        """Partitions with open transactions, as far as they have changed since the start. A dictionary as a set."""

    def note_changed(self, keys: Collection[Key]) -> None:
        """Watches those of the partitions that have open transactions: a listener of housekeeping."""
        for key in keys:
            self._look_at(key)

    def _look_at(self, key: Key) -> None:
        partition = self._held.get(key)
        if partition is not None and partition.log.producers.open_transaction_count:
            self._watched[key] = None
        else:
            self._watched.pop(key, None)

    async def run(self) -> None:
        """Looks at all partitions once, and then at those with open transactions every minute."""
        await work_in_turns(map(self._look_at, list(self._held)))
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.round()

    async def round(self) -> None:
        """Asks about what is open for too long, and aborts what no coordinator knows."""
        suspects: list[Suspect] = []
        await work_in_turns(self._add_suspects(suspects))
        if not suspects:
            return
        known = await self._question.open_of(sorted({one.producer_id for one in suspects}))
        if known is None:
            return
        for one in suspects:
            place = (one.producer_id, one.partition.topic, one.partition.index)
            if place not in known and one.is_unchanged:
                await self._abort(one)

    def _add_suspects(self, suspects: list[Suspect]) -> Iterator[None]:
        """Looks at one partition per step."""
        for key in list(self._watched):
            self._look_at(key)
            partition = self._held.get(key)
            if partition is not None and partition.is_leader and key in self._watched:
                suspects += self._suspects_of(partition)
            if len(suspects) >= _SUSPECTS_MAX:
                del suspects[_SUSPECTS_MAX:]
                return
            yield

    def _suspects_of(self, partition: Partition) -> Iterable[Suspect]:
        producers = partition.log.producers
        assert producers.open_transactions is not None, "some are open"
        last_ms = self._clock.steady_ms() - self._patience_ms
        for producer_id, first_offset in producers.open_transactions.items():
            entry = producers.get(producer_id)
            if entry is not None and entry.last_append_ms < last_ms:
                yield Suspect(partition, partition.leader_epoch, producer_id, first_offset, entry)

    async def _abort(self, one: Suspect) -> None:
        """Appends the marker in this step, and waits for its commit."""
        partition, producer_id = one.partition, one.producer_id
        last = partition.log.producers.last_marker(producer_id)
        marker = TransactionMarker(
            producer_id=producer_id,
            producer_epoch=one.entry.producer_epoch,
            number=NO_NUMBER,
            is_commit=False,
            state_partition=NO_STATE_PARTITION,
            coordinator_epoch=0 if last is None else last.coordinator_epoch,
            client_version=0,
            partitions=(
                TransactionPartition(partition.topic, partition.index, partition.topic_id.bytes),
            ),
        )
        ((code,),) = await self._markers.write([marker])
        logger.warning(
            "%s: no coordinator knows the transaction of producer id %d that is open since offset %d; %s",
            partition.name,
            producer_id,
            one.first_offset,
            "it has been aborted"
            if code is ErrorCode.NONE
            else f"its abort has failed: {code.name}",
        )
