"""One produced batch whose outcome comes later: something has to be found out before it is appended.

A batch that passes the checks of `produce.py` is appended in the same step, or becomes a `Pending`. The request then
keeps the lane of appends of its connection (`broker/network/order.py`) until every `Pending` of it is appended, so
batches of a producer reach the log in sequence order. Meanwhile nothing is known of the partition: leadership and
in-sync replicas are checked again, and the append is one step as without a wait.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from echoless.broker.partitions.partition import Partition
from echoless.broker.partitions.produce_rules import ProduceRules
from echoless.broker.records.append import StoredBatch, append_batch, failed_produce
from echoless.broker.records.in_flight import ACKS_ALL, InFlightProduce, TopicKey, Unsettled
from echoless.protocol.compression import recompressed
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.produce import PartitionProduced
from echoless.protocol.record_batch import TRANSACTIONAL_BIT, BatchHeader, Buffer
from echoless.protocol.record_check import Opening, check_all
from echoless.storage.file_system import StorageError


class Pending(Unsettled):
    """One batch, and what it waits for."""

    __slots__ = ("_flight", "_header", "_index", "_records", "_topic")

    def __init__(
        self,
        flight: InFlightProduce,
        topic: TopicKey,
        index: int,
        records: Buffer,
        header: BatchHeader,
    ) -> None:
        self._flight = flight
        self._topic = topic
        self._index = index
        self._records = records
        self._header = header

    async def append(self) -> PartitionProduced | StoredBatch | Unsettled:
        """Waits, then appends the batch, or returns the error of its partition."""
        flight, find = self._flight, self._flight.parts.find
        partition = None
        try:
            rules = find(self._topic, self._index).rules
            records, header = await self._settled(rules)
            flight.read_clock()
            partition = find(self._topic, self._index)  # the role, or all of it, may have gone
            partition.check_leader()
            if flight.acks == ACKS_ALL:
                partition.check_in_sync()
            if header.attributes & TRANSACTIONAL_BIT:
                return append_or_ask(flight, partition, self._topic, records, header)
            return append_batch(flight, partition, records, header)
        except KafkaError as error:
            return failed_produce(flight, self._index, error, partition)
        except StorageError as error:
            flight.parts.fail_storage(error)
            return PartitionProduced(self._index, ErrorCode.KAFKA_STORAGE_ERROR)

    async def _settled(self, rules: ProduceRules) -> tuple[Buffer, BatchHeader]:
        """Waits; returns the batch as it is to be stored. Raises `KafkaError` if it must not be."""
        raise NotImplementedError


def append_or_ask(
    flight: InFlightProduce,
    partition: Partition,
    topic: TopicKey,
    records: Buffer,
    header: BatchHeader,
) -> PartitionProduced | StoredBatch | Unsettled:
    """Appends a transactional batch, or asks its coordinator first; see `transactional.py`. Raises `KafkaError`, `StorageError`."""
    return _transactional()(flight, partition, topic, records, header)


@functools.cache
def _transactional() -> Callable[..., PartitionProduced | StoredBatch | Unsettled]:
    """The append of a batch of a transaction, imported once: an import that has nothing to do takes 0.5 us."""
    from echoless.broker.records.transactional import append_in_transaction

    return append_in_transaction


class DeferredValidation(Pending):
    """A batch whose records take too long to check, or to compress anew, on the event loop: a thread does it."""

    __slots__ = ()

    async def _settled(self, rules: ProduceRules) -> tuple[Buffer, BatchHeader]:
        flight = self._flight
        return await flight.parts.thread.run(
            flight.request.peer.host, _validated, self._records, self._header, flight.opening, rules
        )


def _validated(
    records: Buffer, header: BatchHeader, opening: Opening, rules: ProduceRules
) -> tuple[Buffer, BatchHeader]:
    """The batch as it is to be stored, its records checked; in a thread. Raises `KafkaError`."""
    check_all(records, header, opening, needs_keys=rules.needs_keys)
    if rules.codec is None or header.codec_id == rules.codec.codec:
        return records, header
    return as_stored(records, header, rules)


def as_stored(
    records: Buffer, header: BatchHeader, rules: ProduceRules
) -> tuple[Buffer, BatchHeader]:
    """The batch compressed as the topic asks, before it is decided on: its repeat becomes the same bytes."""
    assert rules.codec is not None
    changed, changed_header = recompressed(records, header, rules.codec)
    if len(changed) > rules.bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(changed)} bytes as compression.type stores it, which exceeds the maximum of "
            f"{rules.bytes_max}",
        )
    return changed, changed_header
