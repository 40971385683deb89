"""`producer_state`: one replica's producer state, each producer with its whole window."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from echoless.broker.handlers.describe_producers import find_replica
from echoless.broker.network.request import Peer
from echoless.protocol.dedup import ProducerEntry
from echoless.protocol.native.messages import ANY_PRODUCER, ProducerStateRequest
from echoless.storage.producers.state import ProducerStates

if TYPE_CHECKING:
    from echoless.broker.clock import Clock
    from echoless.broker.services import Services


def handle(message: ProducerStateRequest, _peer: Peer, services: Services) -> dict[str, Any]:
    """Producers in the order of their last append, oldest first. Raises `KafkaError`."""
    producers = find_replica(services, message.topic, message.partition).log.producers
    return {
        "producer_count": len(producers),
        "window": producers.window,
        "producers": [
            _entry(producer_id, entry, services.clock)
            for producer_id, entry in _chosen(message, producers)
        ],
    }


def _chosen(
    message: ProducerStateRequest, producers: ProducerStates
) -> Iterable[tuple[int, ProducerEntry]]:
    if message.producer_id == ANY_PRODUCER:
        return islice(producers.items(), message.skip, message.skip + message.limit)
    entry = producers.get(message.producer_id)
    return [] if entry is None else [(message.producer_id, entry)]


def _entry(producer_id: int, entry: ProducerEntry, clock: Clock) -> dict[str, Any]:
    return {
        "producer_id": producer_id,
        "producer_epoch": entry.producer_epoch,
        "last_append_ms": clock.to_wall_ms(entry.last_append_ms),
        "batches": [
            {
                "base_sequence": batch.base_sequence,
                "last_sequence": batch.last_sequence,
                "base_offset": batch.base_offset,
                "last_offset": batch.last_offset,
                "timestamp": batch.timestamp,
                "crc": batch.crc,
            }
            for batch in entry.batches
        ],
    }
