"""CreateTopics (19), versions 2-7: creates topics with their partitions and configuration.

Each topic succeeds or fails on its own, in request order; a name that occurs twice is refused. A
topic is answered once its partitions can accept records, so there is nothing to wait for and the
timeout is ignored.

v2-3: as they are. v4 (KIP-464): -1 partitions or replicas mean the broker's defaults (accepted in
every version). v5 (KIP-525): flexible; the answer gives the numbers and the configuration in
force. v6 (KIP-599): 89 for what a quota does not allow (`mutations.py`). v7 (KIP-516): topic ids.

Skipped: creation policies; there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.config.description import describe_topic
from echoless.broker.config.topic import validated
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.mutations import Mutations
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.repetition import repeated
from echoless.broker.handlers.served import Names, Served
from echoless.broker.metadata.topic import NewTopic, Topic
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import awaited_in_turns
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

_NOT_SHOWN: Final = {"num_partitions": -1, "replication_factor": -1, "configs": ()}
"""Fields for clients that may not describe the configuration."""
DEFAULT: Final = -1
"""The number of partitions or replicas when the client leaves it to the broker."""


async def handle(request: Request, services: Services) -> Answer:
    """One row per name, in the order of the request."""
    body = request.body
    rights = permits.rights_of(request, services)
    twice = repeated(topic.name for topic in body.topics)
    mutations = Mutations.of(request, services)
    rows = (
        _row(
            services,
            mutations,
            one,
            validate_only=body.validate_only,
            is_twice=one.name in twice,
            shows_config=permits.may(
                rights, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, one.name
            ),
        )
        for one in {topic.name: topic for topic in body.topics}.values()
    )
    return await awaited_in_turns(rows, lambda found: {"topics": found})


async def create(
    services: Services, wanted: NewTopic, mutations: Mutations, *, validate_only: bool
) -> Topic:
    """The new topic, counted. Numbers of `wanted` may be `DEFAULT`; its configuration is checked here.

    Raises `KafkaError` as `TopicRegistry.create_topic` does, INVALID_CONFIG, and THROTTLING_QUOTA_EXCEEDED.
    """
    config = services.config
    with mutations.counted(0 if validate_only else _partitions(wanted, services)):
        new = wanted._replace(
            partitions=config.num_partitions if wanted.partitions == DEFAULT else wanted.partitions,
            replication_factor=config.default_replication_factor
            if wanted.replication_factor == DEFAULT
            else wanted.replication_factor,
            config=validated(wanted.config),
        )
        return await services.topics.create(new, validate_only=validate_only)


async def _row(
    services: Services,
    mutations: Mutations,
    wanted: Any,
    *,
    validate_only: bool,
    is_twice: bool,
    shows_config: bool,
) -> dict[str, Any]:
    if is_twice:
        return _failure(wanted.name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
    try:
        new = NewTopic(
            name=wanted.name,
            partitions=wanted.num_partitions,
            replication_factor=wanted.replication_factor,
            assignment=_assignment(wanted),
            config=_config(wanted.configs),
        )
        topic = await create(services, new, mutations, validate_only=validate_only)
    except KafkaError as error:
        return _failure(wanted.name, error)
    return _success(services, topic, shows_config=shows_config)


def _partitions(new: NewTopic, services: Services) -> int:
    if new.assignment is not None:
        return len(new.assignment)
    return services.config.num_partitions if new.partitions == DEFAULT else new.partitions


def _assignment(wanted: Any) -> Mapping[int, tuple[int, ...]] | None:
    """The client's own assignment, which excludes giving numbers."""
    if not wanted.assignments:
        return None
    if wanted.num_partitions != DEFAULT or wanted.replication_factor != DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "a manual partition assignment was specified, so the number of partitions and the "
            "replication factor have to be -1",
        )
    twice = repeated(one.partition_index for one in wanted.assignments)
    if twice:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partitions {sorted(twice)} are assigned twice"
        )
    return {one.partition_index: tuple(one.broker_ids) for one in wanted.assignments}


def _config(configs: Sequence[Any]) -> dict[str, str]:
    """Names and values. Raises `KafkaError` for a name that occurs twice or has no value."""
    twice = repeated(one.name for one in configs)
    if twice:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"configurations are set twice: {', '.join(sorted(twice))}"
        )
    without_value = [one.name for one in configs if one.value is None]
    if without_value:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {', '.join(without_value)}",
        )
    return {one.name: one.value for one in configs}


def _success(services: Services, topic: Topic, *, shows_config: bool) -> dict[str, Any]:
    created = {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": ErrorCode.NONE,
        "error_message": None,
    }
    if not shows_config:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return {**created, "topic_config_error_code": code, **_NOT_SHOWN}
    return {
        **created,
        "num_partitions": topic.partition_count,
        "replication_factor": topic.replication_factor,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.is_read_only,
                "config_source": entry.source,
                "is_sensitive": False,
            }
            for entry in describe_topic(services.settings.dynamic, topic.config)
        ],
    }


def _failure(name: str, error: KafkaError) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": None,
        "error_code": error.code,
        "error_message": error.message or None,
        "configs": (),
    }


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused topic."""
    names = [name for name, _ in refusal.rows if refusal.is_refused(name, -1)]
    return {"topics": [_failure(name, refusal.error) for name in dict.fromkeys(names)]}


SERVED = Served(
    API,
    handle,
    refuse,
    Names.TOPICS,
    Rows("topics"),
    permit=permits.topics(AclOperation.CREATE, or_cluster=AclOperation.CREATE),
)
