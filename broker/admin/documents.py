"""The JSON that the admin port answers with: broker state -> plain dictionaries. No HTTP."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from echoless.broker.admin.group_lags import GroupLags, by_group
from echoless.broker.admin.view import BrokerView, PartitionView
from echoless.broker.config.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from echoless.broker.decisions.events import (
    BatchDecision,
    Event,
    FaultHit,
    RequestSeen,
    SeenBatch,
    Skipped,
    TransactionStep,
)
from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.protocol.errors import ErrorCode
from echoless.storage.strays import Stray

if TYPE_CHECKING:
    from echoless.broker.clock import Clock
    from echoless.coordinators.groups.answers import ListedGroup


def ready_document(broker: BrokerView) -> dict[str, Any]:
    """The broker's identity, and how many partitions it holds and leads."""
    partitions = broker.partitions.values()
    return {
        "status": "ready",
        "broker_id": broker.config.broker_id,
        "cluster_id": broker.cluster_id,
        "partitions": len(partitions),
        "leading": sum(partition.is_leader for partition in partitions),
    }


def health_document(broker: BrokerView, is_shown: Callable[[str], bool]) -> dict[str, Any]:
    """Whether the broker serves, and anything found that needs an operator's attention.

    `is_shown` says of which topics.
    """
    document: dict[str, Any] = {"status": "ok"}
    strays = [_stray_document(stray) for stray in broker.logs.strays if is_shown(stray.topic)]
    if strays:
        document["strays"] = strays
    damaged = [one._asdict() for one in broker.logs.damaged.values() if is_shown(one.topic)]
    if damaged:
        document["damaged"] = damaged
    uncleanable = [
        {"topic": one.topic, "partition": one.partition, "reason": one.reason}
        for one in broker.logs.uncleanable.values()
        if is_shown(one.topic)
    ]
    if uncleanable:
        document["uncleanable"] = uncleanable
    unread = {name: why for name, why in broker.unserved_topics.items() if is_shown(name)}
    if unread:
        document["unserved_topics"] = [
            {"topic": name, "reason": why} for name, why in sorted(unread.items())
        ]
    unserved = broker.groups.unserved() if is_shown(CONSUMER_OFFSETS) else ()
    if unserved:
        document["unserved_groups"] = [one._asdict() for one in unserved]
    unserved = broker.transactions.unserved() if is_shown(TRANSACTION_STATE) else ()
    if unserved:
        document["unserved_transactional_ids"] = [one._asdict() for one in unserved]
    return document


def _stray_document(stray: Stray) -> dict[str, Any]:
    return {
        "name": stray.name,
        "topic": stray.topic,
        "partition": stray.partition,
        "records": stray.records,
        "size_bytes": stray.size_bytes,
        "set_aside_ms": stray.set_aside_ms,
        "reason": stray.reason,
    }


def add_topics(
    broker: BrokerView, topics: list[dict[str, Any]], is_shown: Callable[[str], bool]
) -> Iterator[None]:
    """Adds every topic with the partitions that this broker holds, in order; a partition a step."""
    for (name, index), partition in sorted(broker.partitions.items(), key=lambda item: item[0]):
        if not is_shown(name):
            yield
            continue
        if not topics or topics[-1]["name"] != name:
            topics.append({"name": name, "id": str(partition.topic_id), "partitions": []})
        topics[-1]["partitions"].append(_partition_document(index, partition))
        yield


def add_groups(
    broker: BrokerView,
    groups: list[dict[str, Any]],
    is_shown: Callable[[str], bool],
    is_topic_shown: Callable[[str], bool],
) -> Iterator[None]:
    """Adds every consumer group that this broker coordinates; a group or an offset a step."""
    lags = GroupLags(is_topic_shown)
    yield from lags.add_all(broker)
    lag_of, held_back_of = by_group(lags.by_topic), by_group(lags.held_back)
    for one in broker.groups.listed((), ()):
        if one is not None and is_shown(one.group_id):
            groups.append(
                {
                    "group": one.group_id,
                    "state": one.state,
                    "protocol_type": one.protocol_type,
                    "type": one.group_type,
                    **_epochs_of(one),
                    "lag": lag_of.get(one.group_id),
                    "held_back": held_back_of.get(one.group_id, 0),
                }
            )
        yield


def _epochs_of(group: ListedGroup) -> dict[str, int]:
    if not group.epoch:
        return {}
    return {"epoch": group.epoch, "target_epoch": group.target_epoch}


def _partition_document(index: int, partition: PartitionView) -> dict[str, Any]:
    log = partition.log
    return {
        "partition": index,
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "log_start_offset": log.log_start_offset,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "held_back_by": _holder_document(partition),
        "log_end_offset": log.log_end_offset,
        "size_bytes": log.size_bytes,
        "producers": len(log.producers),
    }


def _holder_document(partition: PartitionView) -> dict[str, int] | None:
    """The oldest open transaction, which holds readers of committed records back; None without one."""
    transactions = partition.log.producers.open_transactions
    oldest = None if transactions is None else transactions.oldest()
    if oldest is None:
        return None
    producer_id, first_offset = oldest
    return {"producer_id": producer_id, "first_offset": first_offset}


def producer_document(producer_id: int, entry: ProducerEntry, clock: Clock) -> dict[str, Any]:
    """One producer with its whole window, oldest batch first."""
    return {
        "producer_id": producer_id,
        "producer_epoch": entry.producer_epoch,
        "last_sequence": entry.last_sequence,
        "last_timestamp": entry.last_timestamp,
        "last_append_ms": clock.to_wall_ms(entry.last_append_ms),
        "window": [_batch_document(batch) for batch in entry.batches],
    }


def _batch_document(batch: BatchMetadata) -> dict[str, Any]:
    return {
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "timestamp": batch.timestamp,
        "crc": batch.crc,
    }


def decision_document(outcome: BatchDecision) -> dict[str, Any]:
    """One decision: who sent what, the outcome, and why."""
    header = outcome.header
    return {
        "number": outcome.number,
        "time_ms": outcome.time_ms,
        "topic": outcome.topic,
        "partition": outcome.partition,
        "client_id": outcome.client_id,
        "address": outcome.address,
        "principal": outcome.principal,
        "connection_id": outcome.connection_id,
        "correlation_id": outcome.correlation_id,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "decision": outcome.outcome,
        "base_offset": outcome.base_offset,
        "error": None if outcome.error_code == 0 else outcome.error_code.name,
        "reason": outcome.reason,
        "window": outcome.window,
    }


def fault_document(hit: FaultHit) -> dict[str, Any]:
    """One hit of a fault: which rule, what it did, and to which request."""
    return {**hit._asdict(), "batches": [batch._asdict() for batch in hit.batches]}


def transaction_step_document(step: TransactionStep) -> dict[str, Any]:
    """One step of a transaction: who has asked for what, and what became of it."""
    document = step._asdict()
    code = document.pop("error_code")
    document["error"] = None if code is ErrorCode.NONE else code.name
    document["partitions"] = [
        {"topic": topic, "partition": index} for topic, index in step.partitions
    ]
    return document


def request_document(seen: RequestSeen, may_read: Callable[[str], bool]) -> dict[str, Any]:
    """One request; the records of its batches as base64, if they were kept and the topic may be read."""
    document = seen._asdict()
    document["batches"] = [
        _seen_batch_document(batch, may_read(batch.topic)) for batch in seen.batches
    ]
    return document


def _seen_batch_document(batch: SeenBatch, is_shown: bool) -> dict[str, Any]:
    header = batch.header
    records = batch.records if is_shown else None
    return {
        "topic": batch.topic,
        "partition": batch.partition,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "record_count": header.record_count,
        "last_offset_delta": header.last_offset_delta,
        "attributes": header.attributes,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "crc": header.crc,
        "size_bytes": header.size,
        "records": None if records is None else b64encode(records).decode(),
    }


def event_document(
    event: Event, may_read: Callable[[str], bool] = lambda _topic: False
) -> dict[str, Any]:
    """One line of the stream; its `event` field says what it is. `may_read`: the topics whose records are in it."""
    if isinstance(event, RequestSeen):
        return {"event": "request", **request_document(event, may_read)}
    if isinstance(event, Skipped):
        return {"event": "skipped", "count": event.appends}
    if isinstance(event, FaultHit):
        return {"event": "fault", **fault_document(event)}
    if isinstance(event, TransactionStep):
        return {"event": "transaction", **transaction_step_document(event)}
    return {"event": "decision", **decision_document(event)}
