"""Transactional batches: appended if their transaction is open on the partition, else once its coordinator has said yes.

What the leader knows by itself, and when an answer counts: `broker/partitions/core/membership.py`. Here the coordinator's code
becomes that of the produce request:

| coordinator | version 12 and later | 11 | older |
|---|---|---|---|
| 51 (an end is under way) | 51 | 19 | 19 |
| 13, 14, 15, 16 | 19 | 19 | 19 |
| 90 | 47 | 47 | 47 |
| 120 | 120 | 120 | 48 |
| anything else | the same | the same | the same |

A batch whose transaction has ended before the answer came gets what the coordinator would say now, 120. From version 12 on the
partition is added to the transaction (KIP-890, part 2); before, the client has added it. With `producer_id_binding` it is asked as well
whether a producer id is that of the request's transactional id: once for each id, also if a transaction is open. Clients repeat
what was answered with 19 or 51. The batches of a request ask when it comes, so that their questions go together; those that
are answered at once are appended in the same step.
"""

from __future__ import annotations

from typing import Final

from echoless.broker.partitions.core.membership import Membership, Question, judge, question_about
from echoless.broker.partitions.partition import Partition
from echoless.broker.records.append import StoredBatch, append_batch, failed_produce
from echoless.broker.records.in_flight import (
    ACKS_ALL,
    InFlightProduce,
    TopicKey,
    Unsettled,
)
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.transactions import (
    AnsweredNowOrLater,
    TransactionAnswered,
    TransactionAsk,
)
from echoless.protocol.produce import PartitionProduced
from echoless.protocol.record_batch import BatchHeader, Buffer
from echoless.protocol.state_records.transaction_records import TransactionPartition
from echoless.storage.file_system import StorageError

ADDS_FROM: Final = 12
"""The first version of Produce that adds its partitions to the transaction."""
KNOWS_ABORTABLE_FROM: Final = 11
QUESTIONS_MAX: Final = 3
"""Questions about one batch; a marker comes between question and append once, if at all."""
_NONE: Final = ErrorCode.NONE
"""Read once: a member of an enum takes 0.1 to 0.2 us in Python 3.11."""
_new: Final = tuple.__new__
"""Makes a named tuple in half the time of calling its class; see `protocol/known/__init__.py`."""
_RETRIED: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def append_in_transaction(
    flight: InFlightProduce,
    partition: Partition,
    topic: TopicKey,
    records: Buffer,
    header: BatchHeader,
) -> PartitionProduced | StoredBatch | Unsettled:
    """Appends a transactional batch that has passed all checks, or asks about it. Raises `KafkaError`, `StorageError`."""
    if header.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    producers, binding = partition.log.producers, flight.parts.binding
    question = question_about(producers, header)
    if question is None:
        if binding is None or binding.is_confirmed(header.producer_id, flight.transactional_id):
            return append_batch(flight, partition, records, header)
        question = Question(producers.last_marker(header.producer_id))
    batch = TransactionalBatch(flight, topic, partition.index, records, header)
    answered = batch.ask(partition, question)
    return batch.settle(partition, answered) if isinstance(answered, TransactionAnswered) else batch


class TransactionalBatch(Unsettled):
    """A batch whose coordinator has been asked about it."""

    __slots__ = (
        *("_answered", "_asked", "_flight", "_header", "_index", "_question", "_records", "_topic"),
    )

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
        self._asked = 0

    def ask(self, partition: Partition, question: Question) -> AnsweredNowOrLater:
        """Asks the coordinator; returns the answer, or what `append` waits for."""
        flight, header = self._flight, self._header
        assert flight.parts.ask is not None, "transactional batches are refused without it"
        is_add = flight.request.version >= ADDS_FROM
        self._question = question
        self._asked += 1
        fields = (partition.topic, partition.index, partition.topic_id_bytes)
        places = (_new(TransactionPartition, fields),)
        identity, version = (header.producer_id, header.producer_epoch), 2 if is_add else 0
        row = (flight.transactional_id, *identity, is_add, version, places)
        ask = _new(TransactionAsk, row)
        self._answered: AnsweredNowOrLater = flight.parts.ask(ask)
        return self._answered

    async def append(self) -> PartitionProduced | StoredBatch | Unsettled:
        """Waits for the coordinator, then appends the batch, or returns the error of its partition."""
        flight = self._flight
        partition = None
        try:
            answered = self._answered
            if not isinstance(answered, TransactionAnswered):
                answered = await answered
            flight.read_clock()
            partition = flight.parts.find(self._topic, self._index)  # it may have gone meanwhile
            partition.check_leader()
            if flight.acks == ACKS_ALL:
                partition.check_in_sync()
            return self.settle(partition, answered)
        except KafkaError as error:
            return failed_produce(flight, self._index, error, partition)
        except StorageError as error:
            flight.parts.fail_storage(error)
            return PartitionProduced(self._index, ErrorCode.KAFKA_STORAGE_ERROR)

    def settle(
        self, partition: Partition, answered: TransactionAnswered
    ) -> PartitionProduced | StoredBatch | Unsettled:
        """Appends the batch if the coordinator has said yes, and that holds. Raises `KafkaError`, `StorageError`."""
        flight, header, number = self._flight, self._header, answered.number
        check_answer(answered, flight.request.version)
        if flight.parts.binding is not None:
            flight.parts.binding.confirm(header.producer_id, flight.transactional_id)
        producers = partition.log.producers
        match judge(producers, header, self._question, number):
            case Membership.APPEND:
                if flight.request.version >= ADDS_FROM:
                    self._check_first_sequence(partition)
                return append_batch(flight, partition, self._records, header)
            case Membership.ENDED:
                raise KafkaError(
                    produce_code(ErrorCode.TRANSACTION_ABORTABLE, flight.request.version),
                    f"transaction {number} of producer id {header.producer_id} has ended on {partition.name}",
                )
            case Membership.HELD_UP:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"the marker of an earlier transaction of producer id {header.producer_id} is missing on "
                    f"{partition.name}",
                )
        if self._asked >= QUESTIONS_MAX:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"transactions of producer id {header.producer_id} have ended on {partition.name} while their "
                f"coordinator was asked",
            )
        question = question_about(producers, header)
        if question is None:
            return append_batch(flight, partition, self._records, header)
        self.ask(partition, question)
        return self

    def _check_first_sequence(self, partition: Partition) -> None:
        """Raises `KafkaError` 45 for a batch from the middle of what an unknown producer has sent: it would leave a gap."""
        header = self._header
        is_first = header.base_sequence == 0 or partition.log.producers.get(header.producer_id)
        if not is_first:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer id {header.producer_id} is not known on {partition.name} and must start at sequence 0, "
                f"not {header.base_sequence}",
            )


def check_answer(answered: TransactionAnswered, version: int) -> None:
    """Raises `KafkaError` with the code that this version of Produce gets, unless the coordinator has said yes."""
    code = answered.error_code
    if code is _NONE:
        (code,) = answered.partition_codes
    if code is _NONE:
        return
    found = produce_code(code, version)
    message = f"the coordinator of the transactional id has answered {code.name}"
    raise KafkaError(found, message)


def produce_code(code: ErrorCode, version: int) -> ErrorCode:
    """The code of a produce request of this version for a coordinator's code, as the table above lists it."""
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= ADDS_FROM:
        return code
    if code in _RETRIED:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < KNOWS_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code
