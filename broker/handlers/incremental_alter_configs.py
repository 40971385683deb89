"""IncrementalAlterConfigs (44), versions 0-1: single names of topics set, deleted or extended.

KIP-339. The changes of one topic are made together or not at all, and are in force when they are
answered. SET and DELETE work for every topic-level name; APPEND and SUBTRACT only for lists.
v1: flexible.

A broker's own configuration cannot be changed while it runs: INVALID_REQUEST, as Kafka answers for
names that are not dynamic. Skipped: broker loggers, client metrics, groups (INVALID_REQUEST).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.config_description import Alteration, AlterOperation, altered
from broker.handlers.config_resource import alter_each, find_topic
from broker.request import Answer, Request
from protocol.errors import ErrorCode, KafkaError
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.broker import Broker

API = Api(key=44, name="incremental_alter_configs", version_min=0, version_max=1, flexible_from=1)


async def handle(request: Request, broker: Broker) -> Answer:
    """One row per resource, in the order of the request."""
    body = request.body

    async def alter(resource: Any) -> None:
        changes = [_alteration(config) for config in resource.configs]
        topic = find_topic(broker, resource.resource_name)
        if body.validate_only:
            altered(topic.config, changes)
        else:
            await broker.registry.alter_topic_config(
                topic.name, lambda overrides: altered(overrides, changes)
            )

    return {"throttle_time": 0, "responses": await alter_each(body.resources, alter)}


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
