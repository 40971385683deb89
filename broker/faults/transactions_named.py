"""The transactions that a request is about, whatever its API and version: ids, producers, results and partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from echoless.broker.faults.match import Part
from echoless.protocol.native.transactions import AddOrVerify, WriteMarkers

_TRANSACTION_KEY: Final = 1
"""FindCoordinator: the keys are transactional ids."""
ADD_PARTITIONS: Final = "add_partitions_to_txn"
WRITE_TXN_MARKERS: Final = "write_txn_markers"
OF_ONE_PRODUCER: Final = frozenset(
    {"init_producer_id", "add_offsets_to_txn", "end_txn", "txn_offset_commit"}
)
"""APIs of the Kafka port whose requests name one producer of a transactional id."""
NAMING_PRODUCERS: Final = OF_ONE_PRODUCER | {
    ADD_PARTITIONS,
    WRITE_TXN_MARKERS,
    "write_markers",
    "add_or_verify",
}
NAMING_IDS: Final = (NAMING_PRODUCERS - {WRITE_TXN_MARKERS}) | {
    "produce",
    "find_coordinator",
    "describe_transactions",
}
NAMING_RESULTS: Final = frozenset({"end_txn", WRITE_TXN_MARKERS, "write_markers"})


def ids_of(api: str, body: Any) -> Iterator[str]:
    """Yields transactional ids; none for a request about something else."""
    if api == "find_coordinator":
        if getattr(body, "key_type", None) == _TRANSACTION_KEY:
            yield from getattr(body, "coordinator_keys", None) or [body.key]
        return
    for name in ("transactional_id", "v3_and_below_transactional_id"):
        if one := getattr(body, name, None):
            yield one
    yield from getattr(body, "transactional_ids", None) or ()
    for row in getattr(body, "transactions", None) or ():
        yield row.transactional_id


def results_of(api: str, body: Any) -> Iterator[str]:
    """Yields the ends that are asked for."""
    if api == "end_txn":
        yield result_text(is_commit=body.committed)
    elif api == WRITE_TXN_MARKERS:
        for marker in body.markers:
            yield result_text(is_commit=marker.transaction_result)


def result_text(*, is_commit: bool) -> str:
    """The end as rules name it."""
    return "commit" if is_commit else "abort"


def parts_of(api: str, body: Any, parts: Iterator[Part]) -> Iterator[Part]:
    """The parts of a request of the Kafka port: those that name a topic, with the producer of a transaction."""
    if api in OF_ONE_PRODUCER:
        identity = getattr(body, "producer_id", -1), getattr(body, "producer_epoch", -1)
        yield from _of_one(*identity, parts)
    elif api == ADD_PARTITIONS:
        yield from _added(body)
    elif api == WRITE_TXN_MARKERS:
        for marker in body.markers:
            result = result_text(is_commit=marker.transaction_result)
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    identity = marker.producer_id, marker.producer_epoch
                    yield Part(topic.name, index, *identity, result=result)
    else:
        yield from parts


def _of_one(producer_id: int, producer_epoch: int, parts: Iterator[Part]) -> Iterator[Part]:
    is_any = False
    for part in parts:
        is_any = True
        yield part._replace(producer_id=producer_id, producer_epoch=producer_epoch)
    if not is_any:
        yield Part("", producer_id=producer_id, producer_epoch=producer_epoch)


def _added(body: Any) -> Iterator[Part]:
    """The partitions of AddPartitionsToTxn, of clients and of brokers."""
    topics = getattr(body, "v3_and_below_topics", ())
    if topics:
        identity = body.v3_and_below_producer_id, body.v3_and_below_producer_epoch
        yield from _in_topics(topics, identity, None)
    for row in getattr(body, "transactions", ()):
        identity = row.producer_id, row.producer_epoch
        yield from _in_topics(row.topics, identity, row.transactional_id)


def _in_topics(topics: Any, identity: tuple[int, int], name: str | None) -> Iterator[Part]:
    for topic in topics:
        for index in topic.partitions:
            yield Part(topic.name, index, *identity, transactional_id=name)


def parts_between_brokers(message: AddOrVerify | WriteMarkers) -> Iterator[Part]:
    """The partitions of a message of the native port, in its order."""
    if isinstance(message, WriteMarkers):
        for marker in message.markers:
            result = result_text(is_commit=marker.is_commit)
            for one in marker.partitions:
                yield Part(
                    *(one.topic, one.partition, marker.producer_id, marker.producer_epoch),
                    transactional_id=marker.transactional_id,
                    result=result,
                )
        return
    for ask in message.transactions:
        for one in ask.partitions:
            yield Part(
                *(one.topic, one.partition, ask.producer_id, ask.producer_epoch),
                transactional_id=ask.transactional_id,
            )
