"""IncrementalAlterConfigs (44), versions 0-1: sets, deletes or extends single names of topics and brokers.

KIP-339. The changes to one resource are made together or not at all, and are in force when they are
answered; those for all brokers are on other brokers soon after. SET and DELETE work for every topic-level name, and
for the settings of brokers that can change while they run; APPEND and SUBTRACT only for lists. v1: flexible.

Kafka's replication throttles do not exist here, so deleting them always succeeds:
`kafka-reassign-partitions.sh --verify` does so. Skipped: broker loggers, client metrics, groups (INVALID_REQUEST).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.config.description import OF_BROKERS, Alteration, AlterOperation, altered
from echoless.broker.config.dynamic import known_as, named
from echoless.broker.config.internal_topics import check_allowed, in_force
from echoless.broker.config.topic import check_in_force
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.config_resource import (
    ConfigResourceType,
    alter_each,
    check_broker,
    check_permitted,
    check_type,
    find_topic,
    refused_resources,
)
from echoless.broker.handlers.permits import rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.services import Services

_THROTTLES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)

API = declared(__name__)


async def handle(request: Request, services: Services) -> Answer:
    """One row per resource, in the order of the request."""
    body = request.body

    rights = rights_of(request, services)

    async def alter(resource: Any) -> None:
        check_permitted(rights, AclOperation.ALTER_CONFIGS, resource)
        changes = [
            change
            for change in map(_alteration, resource.configs)
            if change.operation is not AlterOperation.DELETE or change.name not in _THROTTLES
        ]
        if resource.configs and not changes:
            return
        if resource.resource_type == ConfigResourceType.BROKER:
            await services.settings.alter(
                of_all=check_broker(services.config.broker_id, resource.resource_name),
                edit=lambda stored: _altered_settings(stored, changes),
                validate_only=body.validate_only,
            )
            return
        check_type(resource.resource_type, {ConfigResourceType.TOPIC})
        topic = find_topic(services, resource.resource_name)
        if body.validate_only:
            _altered(services, topic.name, topic.config, changes)
        else:
            await services.registry.alter_topic_config(
                topic.name,
                lambda overrides: _altered(services, topic.name, overrides, changes),
            )

    return await alter_each(body.resources, alter)


def _altered(
    services: Services, topic: str, overrides: Mapping[str, str], changes: Sequence[Alteration]
) -> dict[str, str]:
    result = altered(overrides, changes)
    names = {change.name for change in changes}
    changed = {name: value for name, value in result.items() if name in names}
    check_allowed(topic, changed)
    services.features.check_topic(topic, changed)
    check_in_force(services.config, in_force(topic, result))
    return result


def _altered_settings(stored: Mapping[str, str], changes: Sequence[Alteration]) -> dict[str, str]:
    """The settings after the changes, by their stored names.

    Any name can be deleted, as in Kafka: another release may have stored one that this broker does not know.
    """

    def by_stored_name(change: Alteration) -> Alteration:
        if change.operation is not AlterOperation.DELETE:
            return change._replace(name=named(change.name))
        return change if change.name in stored else change._replace(name=known_as(change.name))

    return altered(stored, map(by_stored_name, changes), OF_BROKERS)


def _alteration(config: Any) -> Alteration:
    """Raises `KafkaError` INVALID_REQUEST for an unknown operation or a missing value."""
    try:
        operation = AlterOperation(config.config_operation)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown operation type: {config.config_operation}"
        ) from error
    if config.value is None and operation is not AlterOperation.DELETE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {config.name}")
    return Alteration(config.name, operation, config.value)


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each resource."""
    return {"responses": refused_resources(refusal)}


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
