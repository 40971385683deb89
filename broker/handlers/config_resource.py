"""The resources that the three configuration APIs name: a topic, or a broker.

Shared by DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, so that they accept and refuse
the same things.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from echoless.broker.handlers.permits import check, check_cluster
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.repetition import repeated
from echoless.broker.metadata.topic import Topic
from echoless.broker.metadata.topic_names import check_topic_name
from echoless.broker.network.request import Answer
from echoless.broker.network.turns import awaited_in_turns
from echoless.protocol.acl import AclOperation
from echoless.protocol.acl import ResourceType as AclResourceType
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services


class ConfigResourceType(enum.IntEnum):
    """Kafka's `ConfigResource.Type` ids."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def check_type(resource_type: int, served: set[ConfigResourceType]) -> None:
    """Raises `KafkaError` INVALID_REQUEST unless it is one of `served`."""
    if resource_type not in served:
        known = {int(one): one.name for one in ConfigResourceType}
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unsupported resource type: {known.get(resource_type, resource_type)}",
        )


def check_permitted(rights: Rights | None, operation: AclOperation, resource: Any) -> None:
    """Raises `KafkaError` if the client may not do this with the configuration of the resource."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        check(rights, operation, AclResourceType.TOPIC, resource.resource_name)
    elif resource.resource_type in {ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER}:
        check_cluster(rights, operation)


def find_topic(services: Services, name: str) -> Topic:
    """Raises `KafkaError` INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION."""
    check_topic_name(name)
    topic = services.registry.topics.get(name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )
    return topic


async def alter_each(resources: Sequence[Any], alter: Callable[[Any], Awaitable[object]]) -> Answer:
    """Alters each resource independently and answers with one row for each.

    A resource listed twice is refused both times. `alter` raises `KafkaError`.
    """
    twice = listed_twice(resources)

    async def row(one: Any) -> dict[str, Any]:
        code, message = ErrorCode.NONE, ""
        try:
            check_once(one, twice)
            await alter(one)
        except KafkaError as error:
            code, message = error.code, error.message
        return {
            "error_code": code,
            "error_message": message or None,
            "resource_type": one.resource_type,
            "resource_name": one.resource_name,
        }

    return await awaited_in_turns(map(row, resources), lambda found: {"responses": found})


def listed_twice(resources: Iterable[Any]) -> set[tuple[int, str]]:
    """The resources that a request names more than once."""
    return repeated((one.resource_type, one.resource_name) for one in resources)


def check_once(resource: Any, twice: Collection[tuple[int, str]]) -> None:
    """Raises `KafkaError` INVALID_REQUEST if the resource is one of `twice`."""
    if (resource.resource_type, resource.resource_name) in twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def check_broker(own_id: int, name: str) -> bool:
    """Returns whether the name of a broker resource means all brokers: it is empty.

    Raises `KafkaError` INVALID_REQUEST if it is another broker's id: values are checked by the broker that they are for.
    """
    if name not in {"", str(own_id)}:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own_id} or empty string, but received {name}",
        )
    return not name


def check_values(configs: Sequence[Any]) -> None:
    """Raises `KafkaError` INVALID_REQUEST for a name without a value, or one that occurs twice."""
    for config in configs:
        if config.value is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for: {config.name}"
            )
    check_names(config.name for config in configs)


def check_names(names: Iterable[str]) -> None:
    """Raises `KafkaError` INVALID_REQUEST if a name occurs twice."""
    twice = repeated(names)
    if twice:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Error due to duplicate config keys: {', '.join(sorted(twice))}",
        )


def refused_resources(refusal: Refusal) -> list[dict[str, Any]]:
    """The error in a row for each resource of the request."""
    return [
        {"resource_type": one.resource_type, "resource_name": one.resource_name, **refusal.row}
        for one in refusal.request.body.resources
    ]
