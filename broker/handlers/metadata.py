"""Metadata (3), versions 0-12: brokers, topics, partitions and their leaders.

v0: an empty list of topics means all; from v1 null means all and empty none. v4 the client says
whether a topic may be created by asking for it; v5 offline replicas; v7 leader epochs; v9 flexible;
v8 (KIP-430) authorised operations, of the cluster up to v10; v10 topic ids in the answer; v12
topics asked for by id. A topic that asking creates is answered when its partitions can take records
(Kafka answers LEADER_NOT_AVAILABLE first and lets the client poll).
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.authorized_operations import cluster_operations, topic_operations
from broker.coordination.node_data import NO_LEADER, PartitionState
from broker.coordination.topic_names import check_topic_name
from broker.request import Answer, Outcome, Request
from protocol.errors import ErrorCode, KafkaError
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.coordination.topic import Topic

API = Api(key=3, name="metadata", version_min=0, version_max=12, flexible_from=9)


_NEVER_LED: Final = PartitionState(leader=NO_LEADER, leader_epoch=0, isr=())
"""Of a topic that is being created."""


_TOPIC_IDS_FROM: Final = 12
"""The schema has ids and null names from 10 on, but no answer could carry a null name before 12."""


class WantedTopic(NamedTuple):
    """A topic as it is asked for: by name, or by id where that is None."""

    name: str | None
    topic_id: uuid.UUID | None = None


def handle(request: Request, broker: Broker) -> Outcome:
    """Answers at once unless a topic has to be created."""
    topics = request.body.topics
    wants_all = topics is None or (request.version == 0 and not topics)
    wanted = None if wants_all else [_wanted(topic) for topic in topics]
    if request.version < _TOPIC_IDS_FROM and any(
        topic.name is None or topic.topic_id is not None for topic in wanted or ()
    ):
        return _refused(broker, wanted or (), request.peer.listener)
    may_create = getattr(request.body, "allow_auto_topic_creation", True)
    listener = request.peer.listener
    answer = describe(broker, wanted, may_create=may_create, listener=listener)
    of_cluster = getattr(request.body, "include_cluster_authorized_operations", False)
    of_topics = getattr(request.body, "include_topic_authorized_operations", False)
    if not of_cluster and not of_topics:
        return answer
    if isinstance(answer, dict):
        return _with_operations(answer, of_cluster=of_cluster, of_topics=of_topics)
    return _with_operations_later(answer, of_cluster=of_cluster, of_topics=of_topics)


async def _with_operations_later(
    answer: Awaitable[dict[str, Any]], *, of_cluster: bool, of_topics: bool
) -> Answer:
    return _with_operations(await answer, of_cluster=of_cluster, of_topics=of_topics)


def _with_operations(
    answer: dict[str, Any], *, of_cluster: bool, of_topics: bool
) -> dict[str, Any]:
    """Adds what the client may do; to a topic's row if the topic has a name, known or not."""
    topics = [
        {
            **row,
            "topic_authorized_operations": topic_operations(asked=of_topics and bool(row["name"])),
        }
        for row in answer["topics"]
    ]
    operations = cluster_operations(asked=of_cluster)
    return {**answer, "topics": topics, "cluster_authorized_operations": operations}


def _refused(broker: Broker, wanted: Sequence[WantedTopic], listener: str) -> dict[str, Any]:
    """As Kafka: every topic of the request is refused; a name that is null comes back empty."""
    rows = [
        _missing(topic.name or "", ErrorCode.INVALID_REQUEST, topic.topic_id) for topic in wanted
    ]
    return _answer(broker, listener, rows)


def _wanted(topic: Any) -> WantedTopic:
    return WantedTopic(topic.name, getattr(topic, "topic_id", None))


def describe(
    broker: Broker, wanted: Sequence[WantedTopic] | None, *, may_create: bool, listener: str
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """The answer for either port; None asks for all topics. Addresses are those of `listener`."""
    if wanted is None:
        topics = broker.registry.topics.values()
        shown = [_topic(broker, topic) for topic in topics if not broker.is_coming(topic)]
        return _answer(broker, listener, shown)
    missing = [
        topic.name for topic in wanted if topic.name is not None and _find(broker, topic) is None
    ]
    if missing and may_create and broker.config.auto_create_topics_enable:
        return _create_and_answer(broker, wanted, missing, listener)
    return _answer(broker, listener, [_wanted_topic(broker, topic, {}) for topic in wanted])


async def _create_and_answer(
    broker: Broker, wanted: Sequence[WantedTopic], missing: list[str], listener: str
) -> dict[str, Any]:
    failures: dict[str, KafkaError] = {}
    for name in dict.fromkeys(missing):
        try:
            await broker.auto_create_topic(name)
        except KafkaError as error:
            failures[name] = _for_clients(broker, error)
    return _answer(broker, listener, [_wanted_topic(broker, topic, failures) for topic in wanted])


def _for_clients(broker: Broker, error: KafkaError) -> KafkaError:
    """What a client is told that asked for a topic and got none.

    A cluster that is just starting has too few brokers for the default replication factor, but not
    for long: code 38 would make the client give up, 5 makes it ask again.
    """
    is_starting = error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    if is_starting and broker.config.zookeeper_hosts is not None:
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, error.message)
    return error


def _find(broker: Broker, wanted: WantedTopic) -> Topic | None:
    """The topic, unless it is none yet."""
    topic: Topic | None
    if wanted.name is not None:
        topic = broker.registry.topics.get(wanted.name)
    elif wanted.topic_id is not None:
        topic = broker.registry.topics_by_id.get(wanted.topic_id)
    else:
        topic = None
    return None if topic is None or broker.is_coming(topic) else topic


def _wanted_topic(
    broker: Broker, wanted: WantedTopic, failures: dict[str, KafkaError]
) -> dict[str, Any]:
    topic, name = _find(broker, wanted), wanted.name
    if topic is not None:
        return _topic(broker, topic)
    if name is None:
        return _missing(None, ErrorCode.UNKNOWN_TOPIC_ID, wanted.topic_id)
    if name in failures:
        return _missing(name, failures[name].code)
    return _missing(name, _missing_code(name))


def _missing_code(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _missing(name: str | None, code: ErrorCode, topic_id: Any = None) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": (),
    }


def _topic(broker: Broker, topic: Topic) -> dict[str, Any]:
    opening = broker.opening(topic)
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": False,
        "partitions": [
            _partition(broker, index, replicas, topic.states.get(index, _NEVER_LED))
            for index, replicas in topic.assignment.items()
            if index not in opening
        ],
    }


def _partition(
    broker: Broker, index: int, replicas: Sequence[int], state: PartitionState
) -> dict[str, Any]:
    has_leader = state.leader != NO_LEADER
    return {
        "error_code": ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": index,
        "leader_id": state.leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": state.isr,
        "offline_replicas": [one for one in replicas if one not in broker.live_brokers],
    }


def _answer(broker: Broker, listener: str, topics: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "brokers": [
            {"node_id": broker_id, "host": address.host, "port": address.port}
            for broker_id, address in broker.addresses(listener).items()
        ],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.controller_id,
        "topics": topics,
    }
