"""AlterConfigs (33), versions 0-2: replaces all that was set for topics and brokers.

Names the request leaves out revert to the broker's value, or to what it was started with. Kafka has deprecated this API because
two clients undo each other's changes (KIP-339); older tools still use it.

v1: no change. v2: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from echoless.broker.config.dynamic import named
from echoless.broker.config.dynamic import validated as validated_settings
from echoless.broker.config.internal_topics import check_allowed, replacing
from echoless.broker.config.topic import check_in_force, validated
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.config_resource import (
    ConfigResourceType,
    alter_each,
    check_broker,
    check_names,
    check_permitted,
    check_type,
    check_values,
    find_topic,
    refused_resources,
)
from echoless.broker.handlers.permits import rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request
from echoless.protocol.acl import AclOperation

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)


async def handle(request: Request, services: Services) -> Answer:
    """One row per resource, in the order of the request."""
    body = request.body

    rights = rights_of(request, services)

    async def alter(resource: Any) -> None:
        check_permitted(rights, AclOperation.ALTER_CONFIGS, resource)
        check_values(resource.configs)
        if resource.resource_type == ConfigResourceType.BROKER:
            settings = _settings(resource.configs)
            await services.settings.alter(
                of_all=check_broker(services.config.broker_id, resource.resource_name),
                edit=lambda _stored: settings,
                validate_only=body.validate_only,
            )
            return
        check_type(resource.resource_type, {ConfigResourceType.TOPIC})
        topic = find_topic(services, resource.resource_name)
        overrides = validated({config.name: config.value for config in resource.configs})
        check_allowed(topic.name, overrides)
        services.features.check_topic(topic.name, overrides)
        check_in_force(services.config, overrides)
        if not body.validate_only:
            await services.registry.set_topic_config(topic.name, replacing(topic.name, overrides))

    return await alter_each(body.resources, alter)


def _settings(configs: Sequence[Any]) -> dict[str, str]:
    """The settings of a broker in stored form. Raises `KafkaError`."""
    values = [(named(config.name), config.value) for config in configs]
    check_names(name for name, _ in values)
    return validated_settings(dict(values))


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each resource."""
    return {"responses": refused_resources(refusal)}


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
