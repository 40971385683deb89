"""Requests that name much: whatever the API, others are served while they are answered."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import itertools
import threading
import uuid
from collections.abc import Awaitable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kio.serial import entity_writer

from echoless.broker.handlers import fetch
from echoless.broker.handlers.alter_user_scram_credentials import USERS_MAX
from echoless.broker.handlers.apis import API_BY_NAME
from echoless.broker.handlers.dispatch import framed, framed_soon
from echoless.broker.handlers.loaded import load
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.network.loop_turn import LOOP_TURN, TURN_S
from echoless.broker.network.request import Peer, Request
from echoless.broker.network.turns import ROWS_PER_TURN, ManyRows
from echoless.broker.records.in_flight import ACKS_LEADER
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.fetch import PartitionFetched, encode_fetch_response
from echoless.protocol.fetch_request import (
    NO_SESSION_EPOCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from echoless.protocol.offset_commit import NO_RETENTION, OffsetCommitRequest, OffsetTopic
from echoless.protocol.produce_request import PartitionRecords, ProduceRequest, TopicRecords
from tests.support.in_process import Running
from tests.support.kio_requests import smallest_request
from tests.support.raw_batches import plain_batch

ROWS = 2 * ROWS_PER_TURN
SERVED = {name: load(api) for name, api in API_BY_NAME.items()}
LISTS = (
    "topics",
    "topic_names",
    "topic_partitions",
    "resources",
    "groups",
    "groups_names",
    "coordinator_keys",
)
"""The fields with the rows of a request, one of which each API has."""
APIS = [
    "alter_configs",
    "alter_partition_reassignments",
    "create_partitions",
    "create_topics",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_configs",
    "describe_groups",
    "elect_leaders",
    "find_coordinator",
    "incremental_alter_configs",
    "list_offsets",
    "offset_commit",
    "offset_fetch",
    "offset_for_leader_epoch",
]
"""The others have one row, or turns of their own: Produce, Fetch, Metadata and DescribeProducers."""

PACKED_BY_HAND = {"offset_commit"}
"""Those that are read by hand, and whose handler packs the answer, in a thread too."""


def body_of_many(api: str) -> Any:
    """A request of the newest version with `ROWS` rows, each of another name."""
    body = smallest_request(api, SERVED[api].api.version_max, elements=1)
    (field,) = [name for name in LISTS if hasattr(body, name)]
    rows = getattr(body, field) or ("x",)
    body = dataclasses.replace(body, **{field: tuple(numbered(rows[0], n) for n in range(ROWS))})
    return as_read(SERVED[api], body) if api in PACKED_BY_HAND else body


def as_read(served: Served, body: Any) -> Any:
    """The request as it is read from the bytes that kio makes of it."""
    out = io.BytesIO()
    entity_writer(type(body))(out, body)
    return served.api.decode_request(served.api.version_max, out.getvalue(), 0)


def numbered(row: Any, number: int) -> Any:
    """The row with a name of its own, and a partition if it names some."""
    name = f"x{number}"
    if isinstance(row, str):
        return name
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(row):
        if field.name in {"name", "topic", "resource_name", "group_id"}:
            changes[field.name] = name
        elif field.name == "topic_id" and row.topic_id is not None:
            changes[field.name] = uuid.UUID(int=number + 1)
        elif field.name in {"partitions", "partition_indexes"} and not getattr(row, field.name):
            changes[field.name] = (0,)
    return dataclasses.replace(row, **changes)


def request_of(served: Served, body: Any) -> Request:
    return Request(served.api.key, served.api.version_max, 1, None, body, Peer(1, "127.0.0.1:1"))


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which each look at it takes a quarter of a turn."""
    ticks: Iterator[int] = itertools.count()
    monkeypatch.setattr(LOOP_TURN, "clock", lambda: next(ticks) * TURN_S / 4)


async def turns_until(outcome: Awaitable[Any]) -> tuple[Any, int]:
    """The answer, and how many turns of the loop others had before it."""
    task, turns = asyncio.ensure_future(outcome), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return task.result(), turns


@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("name", APIS)
async def test_others_have_turns_between_the_rows(running: Running, name: str) -> None:
    """A few rows take the time of a turn; the answer is encoded in a thread."""
    served = SERVED[name]
    outcome = served.handle(request_of(served, body_of_many(name)), running.broker.services)
    assert isinstance(outcome, Awaitable)
    answer, turns = await turns_until(outcome)
    assert isinstance(answer, bytes if name in PACKED_BY_HAND else ManyRows)
    assert turns > ROWS / 5


NAMES = [f"t{n}" for n in range(ROWS)]
WITHOUT_PARTITIONS = {
    "offset_commit": OffsetCommitRequest(
        "g", -1, "", None, NO_RETENTION, tuple([OffsetTopic(name, ()) for name in NAMES])
    ),
    "produce": ProduceRequest(None, ACKS_LEADER, 1000, [TopicRecords(name, []) for name in NAMES]),
    "fetch": FetchRequest(
        0, 0, 1000, 0, NO_SESSION_EPOCH, [FetchTopic(name, []) for name in NAMES]
    ),
}


@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("name", WITHOUT_PARTITIONS)
async def test_others_have_turns_between_topics_without_partitions(
    running: Running, name: str
) -> None:
    """Each is a row of the answer, though nothing is done for it."""
    served = SERVED[name]
    request = by_names(request_of(served, WITHOUT_PARTITIONS[name]))
    outcome = served.handle(request, running.broker.services)
    assert isinstance(outcome, Awaitable)
    _, turns = await turns_until(outcome)
    assert turns > ROWS / 5


def by_names(request: Request) -> Request:
    """The same in the last version that names topics."""
    version = min(request.version, {0: 12, 1: 12}.get(request.api_key, request.version))
    return dataclasses.replace(request, version=version)


@pytest.mark.parametrize(
    "name", ["delete_records", "list_offsets", "offset_fetch", "offset_for_leader_epoch"]
)
async def test_many_topics_without_partitions_are_encoded_in_a_thread(
    running: Running, name: str
) -> None:
    """They are rows, too, though the handler has nothing to do for them."""
    served = SERVED[name]
    request = request_of(served, body_of_empty_topics(name))
    outcome = served.handle(request, running.broker.services)
    answer: Any = await outcome if isinstance(outcome, Awaitable) else outcome
    assert isinstance(answer, ManyRows)
    version = served.api.version_max
    body = served.encode(version, answer)  # and nothing is left to be imported
    dispatched = framed_soon(served.api, version, 1, Peer(1, "127.0.0.1:1"), answer)
    assert isinstance(dispatched, Awaitable)
    assert await dispatched == framed(served.api, version, 1, body)


def body_of_empty_topics(api: str) -> Any:
    """A request of the newest version with `ROWS` topics that name no partitions."""
    body = smallest_request(api, SERVED[api].api.version_max, elements=1)
    if api == "offset_fetch":
        return dataclasses.replace(body, groups=tuple(map(with_empty_topics, body.groups)))
    return with_empty_topics(body)


def with_empty_topics(entity: Any) -> Any:
    (topic,) = entity.topics
    field = "partitions" if hasattr(topic, "partitions") else "partition_indexes"
    rows = (dataclasses.replace(numbered(topic, n), **{field: ()}) for n in range(ROWS))
    return dataclasses.replace(entity, topics=tuple(rows))


@pytest.mark.parametrize("rows", [ROWS_PER_TURN, ROWS_PER_TURN + 1])
async def test_many_fetched_rows_are_encoded_in_a_thread(
    running: Running, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """The same answer as on the loop, where 20,000 rows would take 30 ms."""
    threads: list[bool] = []

    def encode(*arguments: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return encode_fetch_response(*arguments)

    monkeypatch.setattr(fetch, "encode_fetch_response", encode)
    monkeypatch.setattr(fetch, "ROWS_MIN", rows + 1)  # rows that repeat are packed one by one
    partitions = [FetchPartition(n, 0, 1000) for n in range(rows)]
    served = SERVED["fetch"]
    body = FetchRequest(0, 0, 1000, 0, NO_SESSION_EPOCH, [FetchTopic("t", partitions)])
    outcome = served.handle(by_names(request_of(served, body)), running.broker.services)
    answer: Any = await outcome if isinstance(outcome, Awaitable) else outcome
    assert threads == [rows > ROWS_PER_TURN]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = [("t", [PartitionFetched(n, unknown) for n in range(rows)])]
    assert answer == encode_fetch_response(12, ErrorCode.NONE, found)


@pytest.mark.usefixtures("slow_clock")
async def test_others_have_turns_between_the_rows_of_a_fetch(running: Running) -> None:
    """Requests that repeat them, open a session with them, or name them in one, all let others in."""
    rows = 3 * ROWS_PER_TURN
    partitions = [FetchPartition(n, 0, 1000) for n in range(rows)]
    served, services = SERVED["fetch"], running.broker.services
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = [("t", [PartitionFetched(n, unknown) for n in range(rows)])]
    for epoch in (NO_SESSION_EPOCH, 0, 1):
        session = next(iter(services.fetch.sessions._by_id), 0)
        body = FetchRequest(0, 0, 1000, 0, epoch, [FetchTopic("t", partitions)], -1, session)
        outcome = served.handle(by_names(request_of(served, body)), services)
        assert isinstance(outcome, Awaitable)
        answer, turns = await turns_until(outcome)
        session = next(iter(services.fetch.sessions._by_id), 0)
        assert answer == encode_fetch_response(12, ErrorCode.NONE, found, session)
        assert turns > rows / 5


@pytest.mark.usefixtures("slow_clock")
async def test_others_have_turns_between_the_partitions_of_a_produce_request(
    running: Running,
) -> None:
    """Existing partitions store the batch, and every row is answered."""
    await running.broker.services.topics.create(NewTopic(name="t", partitions=2))
    batch = plain_batch([b"value"]).encode()
    rows = [PartitionRecords(n, batch if n < 2 else None) for n in range(ROWS)]
    body = ProduceRequest(None, ACKS_LEADER, 1000, [TopicRecords("t", rows)])
    served = SERVED["produce"]
    request = Request(served.api.key, 9, 1, None, body, Peer(1, "127.0.0.1:1"))
    outcome = served.handle(request, running.broker.services)
    assert isinstance(outcome, Awaitable)
    answer, turns = await turns_until(outcome)
    (topic,) = produce_rows(answer)
    codes = [row.error_code for row in topic.partition_responses]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.NONE] * 2 + [unknown] * (ROWS - 2)
    assert turns > ROWS / 5


def produce_rows(answer: bytes) -> Any:
    from kio.schema.produce.v9.response import ProduceResponse
    from kio.serial import entity_reader

    response, _ = entity_reader(ProduceResponse)(answer, 0)
    return response.responses


@pytest.mark.slow
@pytest.mark.parametrize("name", APIS)
async def test_many_rows_are_refused_in_a_thread(running: Running, name: str) -> None:
    """The error of the gate or of a fault rule is written into each row."""
    served = SERVED[name]
    served.api.prepare_decoding(served.api.version_max)
    refusal = Refusal(
        request=request_of(served, body_of_many(name)),
        error=KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    )
    outcome = served.refuse_whole(refusal, running.broker.services)
    assert isinstance(outcome, Awaitable)
    assert await outcome == served.encode(
        served.api.version_max, served.refuse(refusal, running.broker.services)
    )


@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize(
    ("name", "field"),
    [("create_acls", "creations"), ("describe_user_scram_credentials", "users")],
)
async def test_others_have_turns_between_acls_and_users(
    running: Running, name: str, field: str
) -> None:
    """These have many rows, too: of another kind, and after the tree was asked."""
    served = SERVED[name]
    body = smallest_request(name, served.api.version_max, elements=1)
    (row, *_) = getattr(body, field)
    body = dataclasses.replace(body, **{field: tuple(numbered(row, n) for n in range(ROWS))})
    outcome = served.handle(request_of(served, body), running.broker.services)
    assert isinstance(outcome, Awaitable)
    answer, turns = await turns_until(outcome)
    assert isinstance(answer, ManyRows)
    assert len(answer["results"]) == ROWS
    assert turns > ROWS / 5


class Upsertion:
    """A change of a user that is refused at once: with too few iterations; counts who looks at its user."""

    looks = 0
    mechanism, iterations, salt, salted_password = 1, 1, b"salt", b"salted"

    def __init__(self, user: str) -> None:
        self._user = user

    @property
    def name(self) -> str:
        Upsertion.looks += 1
        return self._user


@pytest.mark.usefixtures("slow_clock")
async def test_many_users_are_changed_without_a_search_for_each(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of many users is looked through once, and others have turns in between."""
    monkeypatch.setattr(Upsertion, "looks", 0)
    served = SERVED["alter_user_scram_credentials"]
    users = [f"x{number}" for number in range(2 * USERS_MAX)]
    body = SimpleNamespace(deletions=(), upsertions=[Upsertion(user) for user in users])
    outcome = served.handle(request_of(served, body), running.broker.services)
    assert isinstance(outcome, Awaitable)
    answer, turns = await turns_until(outcome)
    assert [row["user"] for row in answer["results"]] == users
    codes = [row["error_code"] for row in answer["results"]]
    assert codes[:USERS_MAX] == [ErrorCode.UNACCEPTABLE_CREDENTIAL] * USERS_MAX
    assert codes[USERS_MAX:] == [ErrorCode.INVALID_REQUEST] * USERS_MAX
    assert Upsertion.looks <= 2 * len(users)
    assert turns > len(users) / 5
