"""DescribeConfigs (32), versions 1-4: the values in force for topics and for this broker.

v1 (KIP-226): sources and synonyms. v2: no change. v3 (KIP-569): types and documentation. v4:
flexible. A list of names restricts the answer; null or an empty list means all, as in Kafka. The
broker is named by its id; the empty name asks for what was set for all brokers. Secret values are withheld: null, with `is_sensitive`. A resource that is named
twice is refused: the answer is a hundred times as large as its name.

Skipped: broker loggers, client metrics, groups (INVALID_REQUEST).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from echoless.broker.cluster.addresses import listener_addresses
from echoless.broker.config.description import (
    ConfigEntry,
    describe_all_brokers,
    describe_broker,
    describe_topic,
)
from echoless.broker.config.internal_topics import in_force
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.config_resource import (
    ConfigResourceType,
    check_broker,
    check_once,
    check_permitted,
    check_type,
    find_topic,
    listed_twice,
    refused_resources,
)
from echoless.broker.handlers.permits import rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import in_turns
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)


class DescribeConfigsRequest(NamedTuple):
    resources: tuple[Any, ...]
    include_synonyms: bool
    include_documentation: bool = False


def handle(request: Request, services: Services) -> Outcome:
    """One row per resource, in the order of the request."""
    body = typed(DescribeConfigsRequest, request.body)
    twice = listed_twice(body.resources)
    rights = rights_of(request, services)
    rows = (_row(body, services, resource, twice, rights) for resource in body.resources)
    return in_turns(rows, lambda found: {"results": found})


def _row(
    body: DescribeConfigsRequest,
    services: Services,
    resource: Any,
    twice: Collection[tuple[int, str]],
    rights: Rights | None,
) -> dict[str, Any]:
    wanted = resource.configuration_keys
    entries: Iterable[ConfigEntry] = ()
    code, message = ErrorCode.NONE, ""
    try:
        check_permitted(rights, AclOperation.DESCRIBE_CONFIGS, resource)
        check_once(resource, twice)
        entries = _entries(services, resource)
    except KafkaError as error:
        code, message = error.code, error.message
    return {
        "error_code": code,
        "error_message": message or None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [
            _config(body, entry) for entry in entries if not wanted or entry.name in wanted
        ],
    }


def _entries(services: Services, resource: Any) -> list[ConfigEntry]:
    """Raises `KafkaError`."""
    name, dynamic = resource.resource_name, services.settings.dynamic
    check_type(resource.resource_type, {ConfigResourceType.TOPIC, ConfigResourceType.BROKER})
    if resource.resource_type == ConfigResourceType.TOPIC:
        topic = find_topic(services, name)
        return describe_topic(dynamic, in_force(topic.name, topic.config))
    if check_broker(services.config.broker_id, name):
        return describe_all_brokers(dynamic)
    return describe_broker(dynamic, listener_addresses(services.cluster, services.config.broker_id))


def _config(body: DescribeConfigsRequest, entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": entry.source,
        "is_sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": one.name, "value": one.value, "source": one.source} for one in entry.synonyms
        ]
        if body.include_synonyms
        else (),
        "config_type": entry.type,
        "documentation": entry.doc if body.include_documentation else None,
    }


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each resource."""
    return {"results": [{**row, "configs": ()} for row in refused_resources(refusal)]}


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
