"""`produce`: one batch for one partition, judged and acknowledged as on the Kafka port (`broker/records/request.py`)."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers.produce import API
from echoless.broker.native.acknowledged import produced_fields
from echoless.broker.native.failure import failure
from echoless.broker.network.request import NoResponse, Peer, Request
from echoless.broker.records.in_flight import BatchesByTopic, Encoding, InFlightProduce, TopicKey
from echoless.broker.records.request import produce_one, produce_when_read
from echoless.protocol.errors import KafkaError
from echoless.protocol.native.messages import Produce
from echoless.protocol.produce import PartitionProduced, TopicProduced

if TYPE_CHECKING:
    from echoless.broker.services import Services

ProduceAnswer = dict[str, Any] | PartitionProduced
_KEY: Final = API.key
_VERSION: Final = API.version_max


def handle(
    message: Produce, peer: Peer, services: Services
) -> ProduceAnswer | NoResponse | Awaitable[ProduceAnswer | NoResponse]:
    """Acts like the newest Produce version; acks=0 answers nothing and closes the connection on errors."""
    request = Request(_KEY, _VERSION, message.correlation_id, peer.client_id, message, peer)
    flight = InFlightProduce(services.produce, request, message.acks, message.timeout_ms, _ENCODING)
    outcome: ProduceAnswer | NoResponse | Awaitable[ProduceAnswer | NoResponse]
    if message.unbuilt is None:
        outcome = produce_one(flight, message.topic, message.partition, message.batch)
    else:
        outcome = produce_when_read(flight, partial(_built, flight, message))
    return outcome


async def _built(flight: InFlightProduce, message: Produce) -> BatchesByTopic:
    """The batch of a message with many records, built in a thread."""
    built = await flight.parts.thread.run(flight.request.peer.host, message.built)
    return [(built.topic, [(built.partition, built.batch)])]


def _all_encoded(version: int, topics: list[TopicProduced]) -> ProduceAnswer:
    ((topic, (produced,)),) = topics
    return _encoded(version, topic, produced)


def _encoded(_version: int, _topic: TopicKey, produced: PartitionProduced) -> ProduceAnswer:
    error_code = produced.error_code
    if not error_code:
        return produced
    answer = produced_fields(produced)
    leader = produced.current_leader
    if leader is not None:
        answer |= {"leader_id": leader.leader_id, "leader_epoch": leader.leader_epoch}
    message = produced.error_message or produced.reason
    return answer | failure(KafkaError(error_code, message))


_ENCODING: Final = Encoding(_encoded, _all_encoded)
