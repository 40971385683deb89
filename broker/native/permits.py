"""Permits of the native port: its messages need what their twins of the Kafka port need.

A message is denied as a whole; those with rows ask for each row in their handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.config.names import IdempotentWriteAcl
from echoless.broker.config.values import INT64_MAX
from echoless.broker.handlers.init_producer_id import may_be_idempotent
from echoless.broker.handlers.permits import check, check_cluster, denied
from echoless.broker.network.request import CloseConnectionError, Peer
from echoless.broker.records.in_flight import ACKS_NONE
from echoless.broker.records.produce import has_producer_id
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import KafkaError
from echoless.protocol.native.messages import CreateTopic, Fetch, Produce, ProducerStateRequest
from echoless.protocol.sequence import NO_PRODUCER_ID

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

Permit = Callable[[Any, "Rights", "Services"], None]
"""Raises `KafkaError` for what the client may not do."""


def check_permitted(services: Services, peer: Peer, name: str, message: Any) -> None:
    """Raises `KafkaError` if the client may not do this; `CloseConnectionError` if it expects no answer."""
    assert services.access is not None
    rights = services.access.rights(peer)
    try:
        PERMITS[name](message, rights, services)
    except KafkaError as error:
        if getattr(message, "acks", None) == ACKS_NONE:
            raise CloseConnectionError(str(error)) from error
        raise


def _everyone(_message: Any, _rights: Rights, _services: Services) -> None:
    """Needs nothing, or the handler asks."""


def _between_brokers(_message: Any, rights: Rights, _services: Services) -> None:
    check_cluster(rights, AclOperation.CLUSTER_ACTION)


def _init_producer_id(_message: Any, rights: Rights, services: Services) -> None:
    if not may_be_idempotent(rights, services):
        raise denied(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


def _produce(message: Produce, rights: Rights, services: Services) -> None:
    if services.config.idempotent_write_acl is IdempotentWriteAcl.CLUSTER and _is_idempotent(
        message
    ):
        check_cluster(rights, AclOperation.IDEMPOTENT_WRITE)
    check(rights, AclOperation.WRITE, ResourceType.TOPIC, message.topic)


def _is_idempotent(message: Produce) -> bool:
    if message.unbuilt is None:
        return has_producer_id(message.batch)
    producer_id = message.unbuilt.integer(
        "producer_id", NO_PRODUCER_ID, least=-INT64_MAX - 1, most=INT64_MAX
    )
    return producer_id != NO_PRODUCER_ID


def _read(message: Fetch | ProducerStateRequest, rights: Rights, _services: Services) -> None:
    check(rights, AclOperation.READ, ResourceType.TOPIC, message.topic)


def _create_topic(message: CreateTopic, rights: Rights, _services: Services) -> None:
    if not rights.may_with_cluster(AclOperation.CREATE):
        check(rights, AclOperation.CREATE, ResourceType.TOPIC, message.topic)


PERMITS: Final[Mapping[str, Permit]] = {
    "hello": _everyone,
    "sasl": _everyone,
    "init_producer_id": _init_producer_id,
    "lease_pid": _everyone,
    "produce": _produce,
    "fetch": _read,
    "producer_state": _read,
    "metadata": _everyone,
    "create_topic": _create_topic,
    "replica_snapshot": _between_brokers,
    "await_topic": _between_brokers,
    "note_tree": _between_brokers,
    "write_markers": _between_brokers,
    "find_transactions": _between_brokers,
    "add_or_verify": _between_brokers,
    "admin_read": _between_brokers,
    "replica_fetch": _between_brokers,
    "replica_wake": _between_brokers,
}
