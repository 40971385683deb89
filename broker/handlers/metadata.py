"""Metadata (3), versions 0-13: brokers, topics, partitions and their leaders.

v0: an empty list of topics means all; from v1 null means all and empty none. v4 the client says
whether topics may be auto-created; v5 offline replicas; v7 leader epochs; v9 flexible; v8 (KIP-430)
authorised operations, for the cluster up to v10; v10 topic ids in the answer; v12 topics requested by
id; v13 an error code of the whole answer, always 0. An auto-created topic is answered once its partitions
can accept records (Kafka answers LEADER_NOT_AVAILABLE first and lets the client poll).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.cluster.addresses import client_addresses
from echoless.broker.cluster.metadata_rows import PACKED_AT_ONCE, partition_rows
from echoless.broker.config.internal_topics import INTERNAL_TOPICS
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.authorized_operations import cluster_operations, topic_operations
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.permits import DENIED_TOPIC, name_of, rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Names, Served
from echoless.broker.metadata.topic_names import check_topic_name
from echoless.broker.network.request import Answer, Outcome, Peer, Request
from echoless.broker.network.turns import (
    ROWS_PER_TURN,
    Described,
    Fields,
    for_client,
    in_turns,
    work_in_turns,
)
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.metadata_request import MetadataRequest, WantedTopic
from echoless.protocol.metadata_response import (
    BrokerRow,
    PartitionRow,
    encode_metadata_response,
    encode_topic,
)

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.metadata.topic import Topic
    from echoless.broker.services import Services

API = declared(__name__)

_TOPIC_IDS_FROM: Final = 12
"""The first version that may request topics by id. The schema has ids and null names from 10 on, but no answer
could carry a null name before 12."""
_NO_BROKER: Final = -1
CREATED_MAX: Final = 100
"""Topics that one request may create: each takes files, and a write to the tree."""


class _Creations:
    """The topics that a request may still create."""

    def __init__(self) -> None:
        self._left = CREATED_MAX

    def take(self) -> bool:
        """Counts one, unless there are none left."""
        self._left -= 1
        return self._left >= 0


class MissingTopic(NamedTuple):
    """A requested topic that is missing, and why."""

    name: str | None
    topic_id: uuid.UUID | None
    code: ErrorCode


class _Asked(NamedTuple):
    """The parameters of the answer other than its topics."""

    version: int
    peer: Peer
    of_cluster: bool
    of_topics: bool
    rights: Rights | None


Found = list["Topic | MissingTopic"]
Failures = dict[WantedTopic, KafkaError]


def handle(request: Request, services: Services) -> Outcome:
    """Answers at once unless a topic has to be created or a lot has to be packed."""
    body = _read(request)
    wanted = body.topics
    asked = _Asked(
        version=request.version,
        peer=request.peer,
        of_cluster=body.include_cluster_authorized_operations,
        of_topics=body.include_topic_authorized_operations,
        rights=rights_of(request, services),
    )
    if not _may_request(request.version, wanted or ()):
        return _packed(services, _refused(wanted or ()), asked)
    may_create = body.allow_auto_topic_creation
    if wanted is not None and len(wanted) > ROWS_PER_TURN:
        return _many(request, services, wanted, asked, may_create=may_create)
    found = _find_all(services, wanted, may_create=may_create, rights=asked.rights)
    if not isinstance(found, list):
        return _packed_later(services, found, asked)
    if services.metadata_rows.count_missing(_topics(found), asked.version) <= PACKED_AT_ONCE:
        return _packed(services, found, asked)
    return _packed_in_slices(services, found, asked)


def _read(request: Request) -> MetadataRequest:
    """The request, in which None means all topics in version 0, too."""
    body: MetadataRequest = request.body
    return body if request.version > 0 or body.topics else body._replace(topics=None)


def _may_request(version: int, wanted: Sequence[WantedTopic]) -> bool:
    """Whether the version may request these topics: before v12 by their names only."""
    return version >= _TOPIC_IDS_FROM or all(
        topic.name is not None and topic.topic_id is None for topic in wanted
    )


def _id_first(topic: WantedTopic) -> WantedTopic:
    """The topic by its id: one that was deleted and recreated has the name, but not the id."""
    return topic if topic.topic_id is None else WantedTopic(None, topic.topic_id)


def _refused(wanted: Sequence[WantedTopic]) -> Found:
    """Refuses every topic of the request, as Kafka does; a null name comes back empty."""
    return [
        MissingTopic(topic.name or "", topic.topic_id, ErrorCode.INVALID_REQUEST)
        for topic in wanted
    ]


def _topics(found: Found) -> Iterator[Topic]:
    return (one for one in found if not isinstance(one, MissingTopic))


async def _packed_later(services: Services, found: Awaitable[Found], asked: _Asked) -> Answer:
    return await _packed_in_slices(services, await found, asked)


async def _packed_in_slices(services: Services, found: Found, asked: _Asked) -> Answer:
    await services.metadata_rows.prepare(_topics(found), asked.version)
    return _packed(services, found, asked)


async def _many(
    request: Request,
    services: Services,
    wanted: Sequence[WantedTopic],
    asked: _Asked,
    *,
    may_create: bool,
) -> Answer:
    """Answers a request for many topics, some at a time, each once."""
    each: dict[WantedTopic, None] = {}
    await work_in_turns(each.setdefault(_id_first(topic)) for topic in wanted)
    found: Found = []
    budget = _Creations()
    for some in _slices(list(each), ROWS_PER_TURN // 4):
        part = _find_all(services, some, may_create=may_create, rights=asked.rights, left=budget)
        found += part if isinstance(part, list) else await part
        await asyncio.sleep(0)
    await services.metadata_rows.prepare(_topics(found), asked.version)
    rows: list[tuple[bytes, int]] = []
    await work_in_turns(map(rows.append, (_row(services, one, asked) for one in found)))
    return await for_client(request.peer.host, _encoder(services, asked, rows))


def _slices(topics: Sequence[WantedTopic], size: int) -> Iterator[Sequence[WantedTopic]]:
    return (topics[at : at + size] for at in range(0, len(topics), size))


def _row(services: Services, one: Topic | MissingTopic, asked: _Asked) -> tuple[bytes, int]:
    """The topic's row, and the operations on it."""
    is_asked = asked.of_topics and not _is_denied(one)
    operations = topic_operations(asked.rights, one.name, asked=is_asked)
    return _packed_topic(services, one, asked.version), operations


def _packed(services: Services, found: Found, asked: _Asked) -> bytes:
    return _encoder(services, asked, [_row(services, one, asked) for one in found])()


def _encoder(
    services: Services, asked: _Asked, rows: list[tuple[bytes, int]]
) -> Callable[[], bytes]:
    """Returns what makes the body of the answer; operations are reported for any topic with a name, known or not."""
    return partial(
        encode_metadata_response,
        asked.version,
        brokers=[
            BrokerRow(broker_id, address.host, address.port)
            for broker_id, address in client_addresses(services.cluster, asked.peer).items()
        ],
        cluster_id=services.cluster_id,
        controller_id=services.cluster.controller_id,
        topics=rows,
        cluster_operations=cluster_operations(asked.rights, asked=asked.of_cluster),
    )


def _is_denied(one: Topic | MissingTopic) -> bool:
    return isinstance(one, MissingTopic) and one.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _packed_topic(services: Services, topic: Topic | MissingTopic, version: int) -> bytes:
    if isinstance(topic, MissingTopic):
        return encode_topic(
            version,
            error_code=topic.code,
            name=topic.name,
            topic_id=topic.topic_id,
            partition_count=0,
            partitions=(),
        )
    return services.metadata_rows.packed(topic, version)


def describe(
    services: Services,
    wanted: Sequence[WantedTopic] | None,
    *,
    may_create: bool,
    peer: Peer,
    rights: Rights | None,
) -> Described:
    """The answer as plain values; None means all topics. Addresses are those for `peer`."""
    found = _find_all(services, wanted, may_create=may_create, rights=rights)
    if isinstance(found, list):
        return _described(services, peer, found)
    return _described_later(services, peer, found)


async def _described_later(services: Services, peer: Peer, found: Awaitable[Found]) -> Fields:
    outcome = _described(services, peer, await found)
    return await outcome if isinstance(outcome, Awaitable) else outcome


def _described(services: Services, peer: Peer, found: Found) -> Described:
    """Describes thousands of partitions in several turns of the loop."""
    topics: list[dict[str, Any]] = []
    return in_turns(
        _topics_by_steps(services, found, topics), lambda _: _answer(services, peer, topics)
    )


def _find_all(
    services: Services,
    wanted: Sequence[WantedTopic] | None,
    *,
    may_create: bool,
    rights: Rights | None,
    left: _Creations | None = None,
) -> Found | Awaitable[Found]:
    """The requested topics; None means all that the client may describe."""
    if wanted is None:
        topics = [
            topic
            for topic in services.registry.topics.values()
            if not services.partitions.is_coming(topic)
        ]
        return list(topics) if rights is None else _described_to(rights, topics)
    # Each once: thousands of mentions must not become thousands of rows.
    wanted = list(dict.fromkeys(map(_id_first, wanted)))
    failures = {} if rights is None else _denied(rights, wanted, services)
    missing = [
        topic.name
        for topic in wanted
        if topic.name is not None and topic not in failures and _find(services, topic) is None
    ]
    if missing and may_create and services.config.auto_create_topics_enable:
        if rights is not None:
            failures |= _denied_creation(rights, missing)
            missing = [name for name in missing if WantedTopic(name) not in failures]
        return _create_and_find(services, wanted, missing, failures, left or _Creations())
    return [_find_or_say_why(services, topic, failures) for topic in wanted]


def _described_to(rights: Rights, topics: list[Topic]) -> Found:
    allowed = rights.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC)
    return [topic for topic in topics if allowed[topic.name]]


def _denied(rights: Rights, wanted: Sequence[WantedTopic], services: Services) -> Failures:
    """The error of those that the client may not describe, whether they exist or not."""
    allowed = rights.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC)
    names = ((one, one.name or _name_of(one, services)) for one in wanted)
    error = DENIED_TOPIC[AclOperation.DESCRIBE]
    return {one: error for one, name in names if name is not None and not allowed[name]}


def _name_of(wanted: WantedTopic, services: Services) -> str | None:
    """The name of a topic that is requested by its id; None if there is no such topic."""
    return None if wanted.topic_id is None else name_of(wanted.topic_id, services)


def _denied_creation(rights: Rights, missing: list[str]) -> Failures:
    """The error of those that the client may describe, but not create."""
    if rights.may_with_cluster(AclOperation.CREATE):
        return {}
    allowed = rights.allowed(AclOperation.CREATE, ResourceType.TOPIC)
    error = DENIED_TOPIC[AclOperation.CREATE]
    return {WantedTopic(name): error for name in missing if not allowed[name]}


async def _create_and_find(
    services: Services,
    wanted: Sequence[WantedTopic],
    missing: list[str],
    failures: Failures,
    left: _Creations,
) -> Found:
    for name in dict.fromkeys(missing):
        if not left.take():  # the client asks for it again
            failures[WantedTopic(name)] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
            continue
        try:
            await services.topics.auto_create(name)
        except KafkaError as error:
            failures[WantedTopic(name)] = _for_clients(services, error)
    return [_find_or_say_why(services, topic, failures) for topic in wanted]


def _for_clients(services: Services, error: KafkaError) -> KafkaError:
    """The error for a client whose requested topic could not be created.

    A cluster that is just starting has too few brokers for the default replication factor, but not
    for long: code 38 would make the client give up, 5 makes it ask again.
    """
    is_starting = error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    if is_starting and services.config.zookeeper_hosts is not None:
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, error.message)
    return error


def _find(services: Services, wanted: WantedTopic) -> Topic | None:
    """The topic, or None if it does not exist yet."""
    topic: Topic | None
    if wanted.name is not None:
        topic = services.registry.topics.get(wanted.name)
    elif wanted.topic_id is not None:
        topic = services.registry.topics_by_id.get(wanted.topic_id)
    else:
        topic = None
    return None if topic is None or services.partitions.is_coming(topic) else topic


def _find_or_say_why(
    services: Services, wanted: WantedTopic, failures: Failures
) -> Topic | MissingTopic:
    name = wanted.name
    if wanted in failures:
        return MissingTopic(name, wanted.topic_id, failures[wanted].code)
    topic = _find(services, wanted)
    if topic is not None:
        return topic
    if name is None:
        return MissingTopic(None, wanted.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    return MissingTopic(name, None, _missing_code(name))


def _missing_code(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topics_by_steps(
    services: Services, found: Found, topics: list[dict[str, Any]]
) -> Iterator[None]:
    """Adds the topics to `topics`; a step for each topic and each partition."""
    for topic in found:
        partitions: list[dict[str, Any]] = []
        code = topic.code if isinstance(topic, MissingTopic) else ErrorCode.NONE
        topics.append(_topic(code, topic.name, topic.topic_id, partitions))
        yield
        if isinstance(topic, MissingTopic):
            continue
        opening, live = services.partitions.opening(topic), services.cluster.brokers
        for row in partition_rows(topic, opening, live):
            partitions.append(_partition(row))
            yield


def _topic(
    code: ErrorCode, name: str | None, topic_id: uuid.UUID | None, partitions: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": partitions,
    }


def _partition(row: PartitionRow) -> dict[str, Any]:
    return {
        "error_code": row.error_code,
        "partition_index": row.partition_index,
        "leader_id": row.leader_id,
        "leader_epoch": row.leader_epoch,
        "replica_nodes": row.replicas,
        "isr_nodes": row.isr,
        "offline_replicas": row.offline_replicas,
    }


def _answer(services: Services, peer: Peer, topics: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "brokers": [
            {"node_id": broker_id, "host": address.host, "port": address.port}
            for broker_id, address in client_addresses(services.cluster, peer).items()
        ],
        "cluster_id": services.cluster_id,
        "controller_id": services.cluster.controller_id,
        "topics": topics,
    }


def refuse(refusal: Refusal, services: Services) -> Answer:
    """The error in the row of each refused topic, and the brokers, so that the client can ask again.

    Before a log-in only what the request names; after it, names that the client may know.
    """
    keys = [key for key, _ in refusal.rows if refusal.is_refused(key, -1)]
    if not refusal.request.body.topics and not refusal.is_before_login:
        names = filter(partial(_may_know, refusal, services), services.registry.topics)
        keys = [name for name in names if refusal.is_refused(name, -1)]
    rows = [_topic(refusal.error.code, *_name_and_id(key, refusal, services), []) for key in keys]
    if refusal.is_before_login:
        return {
            "error_code": ErrorCode.NONE,
            "brokers": (),
            "cluster_id": None,
            "controller_id": _NO_BROKER,
            "topics": rows,
        }
    return _answer(services, refusal.request.peer, rows)


def _name_and_id(
    key: str | uuid.UUID, refusal: Refusal, services: Services
) -> tuple[str | None, uuid.UUID | None]:
    if isinstance(key, str):
        return key, None
    name = name_of(key, services)
    if name is None or not _may_know(refusal, services, name):
        name = None if refusal.request.version >= _TOPIC_IDS_FROM else ""
    return name, key


def _may_know(refusal: Refusal, services: Services, name: str) -> bool:
    """Whether the client may learn that there is a topic of this name."""
    if refusal.is_before_login:
        return False
    rights = rights_of(refusal.request, services)
    return rights is None or rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


SERVED = Served(API, handle, refuse, Names.TOPICS, Rows("topics"), permit=permits.asked_by_handler)
