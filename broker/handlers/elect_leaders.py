"""ElectLeaders (43), versions 0-2: returns partitions to their preferred leaders, or ends an outage.

A preferred election (type 0) makes the first replica of the assignment the leader, if it is alive and
in sync. An unclean one (type 1, KIP-460) makes any live replica the leader of a leaderless partition,
whatever that loses. The controller holds the elections (`broker/controller`); any broker accepts the
request, writes it into the node that the controller watches, and answers once its own view shows the
new leaders or the timeout has expired. A request that names no partitions means all; only those that
needed an election are then answered.

v0: preferred only. v1 (KIP-460): election type, and a top-level error code. v2: flexible.
"""

from __future__ import annotations

import asyncio
import datetime
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.controller.election_requests import ask
from echoless.broker.controller.elections import ElectionType
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Names, Served
from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr
from echoless.broker.metadata.topic import TopicChanged, TopicEvent
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import ROWS_PER_TURN, ManyRows, work_in_turns
from echoless.broker.tree.node_tree import CoordinationError
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

_PartitionKey = tuple[str, int]
_Outcomes = dict[_PartitionKey, KafkaError | None]
_ByTopic = defaultdict[str, list[dict[str, Any]]]
_Elections = Mapping[_PartitionKey, "ElectionType"]
_NEVER_LED = LeaderAndIsr(leader=NO_LEADER, leader_epoch=-1, isr=())


_PREFERRED: Final = 0
"""The election type of version 0, which has no other (`ElectionType`, imported when it is needed)."""


class ElectLeadersRequest(NamedTuple):
    topic_partitions: tuple[Any, ...] | None
    """None: all."""
    timeout: datetime.timedelta
    election_type: int = _PREFERRED


async def handle(request: Request, services: Services) -> Answer:
    """One row per topic and partition, in the order of the request."""
    body = typed(ElectLeadersRequest, request.body)
    wanted = _wanted(services, body.topic_partitions)
    try:
        election_type = ElectionType(body.election_type)
    except ValueError as error:
        refusal = KafkaError(ErrorCode.INVALID_REQUEST, str(error))
        return await _in_turns(ErrorCode.INVALID_REQUEST, dict.fromkeys(wanted, refusal))
    outcomes = await _obstacles(services, dict.fromkeys(wanted, election_type))
    possible = [key for key, error in outcomes.items() if error is None]
    if possible:
        timeout_s = body.timeout.total_seconds()
        outcomes |= await _hold(services, dict.fromkeys(possible, election_type), timeout_s)
    if body.topic_partitions is None:
        outcomes = {key: error for key, error in outcomes.items() if not _is_needless(error)}
    return await _in_turns(ErrorCode.NONE, outcomes)


def _wanted(services: Services, topic_partitions: Any) -> list[_PartitionKey]:
    if topic_partitions is None:
        topics = services.registry.topics.values()
        return [(topic.name, partition) for topic in topics for partition in topic.assignment]
    return [
        (topic.topic, partition) for topic in topic_partitions for partition in topic.partitions
    ]


async def _obstacles(services: Services, elections: _Elections) -> _Outcomes:
    """Why each election cannot be held; None if it can."""
    outcomes: _Outcomes = {}

    def look() -> Iterator[None]:
        for key in elections:
            outcomes[key] = _obstacle(services, key, elections[key])
            yield

    await work_in_turns(look())
    return outcomes


def _obstacle(
    services: Services, key: _PartitionKey, election_type: ElectionType
) -> KafkaError | None:
    """Why no election can be held; None if one can."""
    name, partition = key
    topic = services.registry.topics.get(name)
    if topic is None or partition not in topic.assignment:
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{partition} does not exist"
        )
    replicas, state = topic.assignment[partition], topic.states.get(partition, _NEVER_LED)
    staying = {one for one, info in services.cluster.brokers.items() if not info.is_leaving}
    if election_type is ElectionType.PREFERRED:
        preferred = services.cluster.brokers.get(replicas[0])
        if preferred is not None and name in preferred.unserved:
            return KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"broker {replicas[0]} cannot read a setting of topic {name}; its log says which",
            )
        return _obstacle_to_preferred(replicas[0], state, staying)
    return _obstacle_to_unclean(replicas, state, staying)


def _obstacle_to_preferred(
    preferred: int, state: LeaderAndIsr, staying: set[int]
) -> KafkaError | None:
    if state.leader == preferred:
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {preferred} leads already")
    if preferred not in staying or preferred not in state.isr:
        condition = "not in sync" if preferred in staying else "not alive"
        return KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is {condition}"
        )
    return None


def _obstacle_to_unclean(
    replicas: tuple[int, ...], state: LeaderAndIsr, staying: set[int]
) -> KafkaError | None:
    if state.leader in staying:
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {state.leader} leads")
    if staying.isdisjoint(replicas):
        return KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"none of {list(replicas)} is alive"
        )
    return None


async def _hold(services: Services, elections: _Elections, timeout_s: float) -> _Outcomes:
    """Asks the controller, and waits until every partition has its intended leader."""
    held = _Held(services, elections)
    cancel = services.registry.listen(held.look)
    try:
        async with asyncio.timeout(timeout_s):
            await ask(services.tree, elections)
            await held.all()
    except (CoordinationError, TimeoutError):
        # The client gets the state as of now; the request stays with the controller.
        pass
    finally:
        cancel()
    late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the election has not been held yet")
    obstacles = await _obstacles(services, elections)
    return {key: None if _is_needless(error) else error or late for key, error in obstacles.items()}


class _Held:
    """The elections of one request that have not been held yet.

    Of an event only what has changed is looked at: thousands of elections bring many events.
    """

    def __init__(self, services: Services, elections: _Elections) -> None:
        self._services = services
        self._elections = elections
        self._left = set(elections)
        self._are_held = asyncio.Event()

    def look(self, event: TopicEvent) -> None:
        """Notes what has been held according to the event."""
        if isinstance(event, TopicChanged):
            for partition in event.partitions():
                self._check((event.after.name, partition))

    async def all(self) -> None:
        """Returns when all have been held."""
        await work_in_turns(map(self._check, tuple(self._left)))
        await self._are_held.wait()

    def _check(self, key: _PartitionKey) -> None:
        if key in self._left and _is_needless(_obstacle(self._services, key, self._elections[key])):
            self._left.discard(key)
            if not self._left:
                self._are_held.set()


def _is_needless(error: KafkaError | None) -> bool:
    return error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED


async def _in_turns(code: ErrorCode, outcomes: _Outcomes) -> dict[str, Any]:
    """The answer, a partition at a time."""
    by_topic: _ByTopic = defaultdict(list)
    await work_in_turns(_rows(outcomes, by_topic))
    answer = _fields(code, by_topic)
    return ManyRows(answer) if len(outcomes) > ROWS_PER_TURN else answer


def _answer(code: ErrorCode, outcomes: _Outcomes) -> dict[str, Any]:
    by_topic: _ByTopic = defaultdict(list)
    for _ in _rows(outcomes, by_topic):
        pass
    return _fields(code, by_topic)


def _rows(outcomes: _Outcomes, by_topic: _ByTopic) -> Iterator[None]:
    for (topic, partition), error in outcomes.items():
        by_topic[topic].append(
            {
                "partition_id": partition,
                "error_code": ErrorCode.NONE if error is None else error.code,
                "error_message": None if error is None else error.message,
            }
        )
        yield


def _fields(code: ErrorCode, by_topic: _ByTopic) -> dict[str, Any]:
    results = [{"topic": topic, "partition_result": rows} for topic, rows in by_topic.items()]
    return {"error_code": code, "replica_election_results": results}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and again for each partition that is named."""
    keys = [(topic, index) for topic, indexes in refusal.rows for index in indexes]
    return _answer(refusal.error.code, dict.fromkeys(keys, refusal.error))


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("replica_election_results", "partition_result"),
    permit=permits.cluster(AclOperation.ALTER),
)
