"""`lease_pid`: producer ids for a fixed time, one for each partition named.

A lease is not recorded anywhere: the id itself tells every replica that it was leased, and thereby how
long it must be remembered (`protocol/leases.py`). So any broker can answer, regardless of the
partition's leader, and an unused lease costs nothing but its number. It runs from the moment the id is
taken, and is never renewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers.init_producer_id import next_producer_id
from echoless.broker.handlers.permits import check
from echoless.broker.metadata.topic_names import check_topic_name
from echoless.broker.native.failure import SUCCESS, failure
from echoless.broker.network.request import Peer
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.leases import LEASED_ID_MIN, lease_retention_ms, leased_id
from echoless.protocol.native.messages import LeasePid, LeaseWanted
from echoless.protocol.sequence import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

_NO_LEASE: Final[Mapping[str, Any]] = {
    "pid": NO_PRODUCER_ID,
    "generation": NO_PRODUCER_EPOCH,
    "sequence_number": NO_SEQUENCE,
    "expire_ms": -1,
}


async def handle(message: LeasePid, peer: Peer, services: Services) -> dict[str, Any]:
    """The one lease, or one row for each partition in the order of the message."""
    rights = None if services.access is None else services.access.rights(peer)
    lease_ms = services.config.producer_lease_ms
    times = {"lease_ms": lease_ms, "retention_ms": lease_retention_ms(lease_ms)}
    if message.is_single:
        return {**times, **await _lease(services, message.partitions[0], peer, rights)}
    rows = [
        {
            **wanted._asdict(),
            **await _row(services, wanted, peer, rights),
        }  # one after the other, so that the ids are in order
        for wanted in message.partitions
    ]
    return {**times, "partitions": rows}


async def _row(
    services: Services, wanted: LeaseWanted, peer: Peer, rights: Rights | None
) -> dict[str, Any]:
    try:
        return {**SUCCESS, **await _lease(services, wanted, peer, rights)}
    except KafkaError as error:
        return {**failure(error), **_NO_LEASE}


async def _lease(
    services: Services, wanted: LeaseWanted, peer: Peer, rights: Rights | None
) -> dict[str, Any]:
    """Raises `KafkaError` if there is no such partition, the client may not write to it, or as InitProducerId."""
    check(rights, AclOperation.WRITE, ResourceType.TOPIC, wanted.topic)
    _check_partition(services, wanted)
    issued = next_producer_id(services, peer)
    number = issued if isinstance(issued, int) else await issued
    if number >= LEASED_ID_MIN and services.produce.binding is None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{number} is too large for a lease")
    return {
        "pid": leased_id(number),
        "generation": 0,
        "sequence_number": 0,
        "expire_ms": services.clock.wall_ms() + services.config.producer_lease_ms,
    }


def _check_partition(services: Services, wanted: LeaseWanted) -> None:
    check_topic_name(wanted.topic)
    topic = services.registry.topics.get(wanted.topic)
    if topic is None or wanted.partition not in topic.assignment:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {wanted.topic}-{wanted.partition}",
        )
