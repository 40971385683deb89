"""The admin port of a broker with an authorizer: no way around its ACLs."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from echoless.broker.authentication.admin_tokens import Tokens
from echoless.broker.config.names import AllowFaults, Authorizer
from echoless.broker.config.values import Address
from echoless.broker.decisions.events import RequestSeen, SeenBatch
from echoless.broker.metadata.topic import NewTopic
from echoless.coordinators.groups.answers import CommittedOffset, ListedGroup
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.record_batch import HEADER_SIZE, read_header
from echoless.protocol.records import Record, build_batch
from echoless.storage.scrub import Damage
from tests.broker.admin.decider import Decider
from tests.broker.admin.raw_http import Answer, ask
from tests.support.acls import AclEditor
from tests.support.in_process import Running, in_process

RULE = b'{"name": "again", "action": "twice"}'
TOKEN = "q3bVvnsS0lD2Zx8KfWm1uA"


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker with the topics `t` and `u`, of which nothing is allowed yet."""
    more = {"authorizer": Authorizer.ACL, "allow_faults": AllowFaults.TRUE}
    async with in_process(tmp_path, **more) as running:
        for name in ("t", "u"):
            await running.broker.services.topics.create(NewTopic(name=name))
        yield running


@pytest.fixture
def acls(running: Running) -> AclEditor:
    return AclEditor(running.broker.access)


@pytest.fixture
def decider(running: Running) -> Decider:
    broker: Any = running.broker
    return Decider(broker)


async def get(address: str, path: str, *headers: str) -> Answer:
    return await ask(address, f"GET {path} HTTP/1.1", f"Host: {address}", *headers)


def topics_of(document: dict[str, Any]) -> list[str]:
    return [one["name"] for one in document["topics"]]


async def test_topics_are_shown_to_those_who_may_describe_them(
    admin_address: str, acls: AclEditor
) -> None:
    """Others are left out, and their producers are refused whether the topic exists or not."""
    assert topics_of((await get(admin_address, "/topics")).document) == []
    for name in ("t", "none"):
        answer = await get(admin_address, f"/producers/{name}/0")
        assert answer.status == HTTPStatus.FORBIDDEN
        assert "User:ANONYMOUS Describe on this topic" in answer.document["error"]
    await acls.allow(AclOperation.WRITE, "t")
    assert topics_of((await get(admin_address, "/topics")).document) == ["t"]
    assert (await get(admin_address, "/producers/t/0")).status == HTTPStatus.OK
    assert (await get(admin_address, "/producers/u/0")).status == HTTPStatus.FORBIDDEN


async def test_groups_are_shown_to_those_who_may_describe_them(
    running: Running, admin_address: str, acls: AclEditor
) -> None:
    """Others are left out."""
    row = ListedGroup("billing", "consumer", "Stable", "classic")
    running.broker.groups.listed = lambda *_: iter([row])  # type: ignore[method-assign,misc]
    assert (await get(admin_address, "/groups")).document["groups"] == []
    await acls.allow(AclOperation.DESCRIBE, "billing", resource_type=ResourceType.GROUP)
    (shown,) = (await get(admin_address, "/groups")).document["groups"]
    assert shown["group"] == "billing"


async def test_the_lag_of_a_group_counts_the_topics_that_are_shown(
    running: Running, admin_address: str, acls: AclEditor
) -> None:
    """The sum would tell of the others."""
    row = ListedGroup("billing", "consumer", "Stable", "classic")
    offsets = [CommittedOffset("billing", "t", 0, 0), CommittedOffset("billing", "u", 0, 0)]
    groups: Any = running.broker.groups
    groups.listed, groups.committed = lambda *_: iter([row]), lambda: iter(offsets)
    await acls.allow(AclOperation.DESCRIBE, "billing", resource_type=ResourceType.GROUP)
    for topic, lag in ((None, None), ("t", 0)):
        if topic is not None:
            await acls.allow(AclOperation.DESCRIBE, topic)
        (shown,) = (await get(admin_address, "/groups")).document["groups"]
        assert shown["lag"] == lag


async def test_decisions_are_shown_with_their_topics(
    running: Running, admin_address: str, acls: AclEditor, decider: Decider
) -> None:
    """Looked up and followed; faults too, those about no topic with Describe on the cluster."""
    decider.refuse(topic="t")
    decider.refuse(topic="u")
    decider.hit()  # of the topic `orders`
    assert (await get(admin_address, "/decisions")).document == {
        "decisions": [],
        "faults": [],
        "transactions": [],
    }
    await acls.allow(AclOperation.DESCRIBE, "u")
    document = (await get(admin_address, "/decisions")).document
    assert [one["topic"] for one in document["decisions"]] == ["u"]
    assert document["faults"] == []
    url = f"http://{admin_address}/decisions?follow=true"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert json.loads(await answer.content.readline())["topic"] == "u"
        decider.refuse(topic="t")
        decider.refuse(topic="u")
        assert json.loads(await answer.content.readline())["number"] == 5
        await acls.revoke(AclOperation.DESCRIBE, "u")
        decider.refuse(topic="u")
        await acls.allow(AclOperation.DESCRIBE, "u")
        decider.refuse(topic="u")
        assert json.loads(await answer.content.readline())["number"] == 7
    running.broker.decisions.record_fault(
        running.broker.decisions.latest_faults(1)[0]._replace(batches=())
    )
    assert (await get(admin_address, "/decisions")).document["faults"] == []
    await acls.allow(AclOperation.DESCRIBE)
    assert len((await get(admin_address, "/decisions")).document["faults"]) == 1


async def test_the_rest_needs_describe_on_the_cluster(
    admin_address: str, acls: AclEditor, running: Running
) -> None:
    """Metrics name topics, rules name clients; whether the broker is well is no secret."""
    running.broker.logs.damaged["t-0/0.log"] = Damage("t", 0, "t-0/0.log", 0, "rot")
    for path in ("/metrics", "/faults"):
        answer = await get(admin_address, path)
        assert answer.status == HTTPStatus.FORBIDDEN
        assert "Describe on the cluster" in answer.document["error"]
    assert (await get(admin_address, "/health")).document == {"status": "ok"}
    assert (await get(admin_address, "/ready")).status == HTTPStatus.OK
    await acls.allow(AclOperation.DESCRIBE)
    await acls.allow(AclOperation.DESCRIBE, "t")
    for path in ("/metrics", "/faults"):
        assert (await get(admin_address, path)).status == HTTPStatus.OK
    assert len((await get(admin_address, "/health")).document["damaged"]) == 1


async def test_addresses_of_clients_need_alter_on_the_cluster(
    running: Running, admin_address: str, acls: AclEditor
) -> None:
    """An address decides where clients go; seeing them takes Describe, as DescribeConfigs does."""
    head = (f"Host: {admin_address}", "Content-Type: application/json")
    put, body = "PUT /listeners/PLAINTEXT HTTP/1.1", b'{"advertise": "a:1"}'
    assert (await get(admin_address, "/listeners")).status == HTTPStatus.FORBIDDEN
    await acls.allow(AclOperation.DESCRIBE)
    assert (await get(admin_address, "/listeners")).status == HTTPStatus.OK
    answer = await ask(admin_address, put, *head, body=body)
    assert answer.status == HTTPStatus.FORBIDDEN
    assert "Alter on the cluster" in answer.document["error"]
    assert running.broker.listeners.advertised == running.broker.listeners.configured
    await acls.allow(AclOperation.ALTER)
    assert (await ask(admin_address, put, *head, body=body)).status == HTTPStatus.OK


async def test_a_change_needs_alter_on_the_cluster(
    running: Running, admin_address: str, acls: AclEditor
) -> None:
    """As CreateAcls does on the Kafka port."""
    head = (f"Host: {admin_address}", "Content-Type: application/json")
    await acls.allow(AclOperation.DESCRIBE)
    answer = await ask(admin_address, "POST /faults HTTP/1.1", *head, body=RULE)
    assert answer.status == HTTPStatus.FORBIDDEN
    assert "Alter on the cluster" in answer.document["error"]
    assert (await ask(admin_address, "DELETE /faults HTTP/1.1", *head)).status == (
        HTTPStatus.FORBIDDEN
    )
    assert running.broker.faults.documents() == []
    await acls.allow(AclOperation.ALTER)
    answer = await ask(admin_address, "POST /faults HTTP/1.1", *head, body=RULE)
    assert answer.status == HTTPStatus.CREATED


async def test_records_of_requests_need_alter_on_the_cluster_and_read_on_their_topic(
    running: Running, admin_address: str, acls: AclEditor
) -> None:
    """Requests need Describe on their topics; a caller that may not read a topic gets them without their records."""
    path = "/decisions?follow=true&requests=true&records=true"
    await acls.allow(AclOperation.DESCRIBE)
    answer = await get(admin_address, path)
    assert answer.status == HTTPStatus.FORBIDDEN
    assert "Alter on the cluster" in answer.document["error"]
    await acls.allow(AclOperation.ALTER)
    await acls.allow(AclOperation.DESCRIBE, "t")
    await acls.allow(AclOperation.READ, "u")
    url = f"http://{admin_address}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as stream:
        for topic, is_shown in (("t", False), ("u", True), ("secret", None)):
            running.broker.decisions.record_request(_request(topic, large=False), 0)
            running.broker.decisions.record_request(_request(topic, large=True), 0)
            if is_shown is None:
                continue
            for _ in range(2):
                shown = json.loads(await stream.content.readline())
                assert shown["event"] == "request"
                (batch,) = shown["batches"]
                assert batch["topic"] == topic
                assert (batch["records"] is not None) is is_shown


def _request(topic: str, *, large: bool) -> RequestSeen:
    batch = build_batch([Record(0, 0, None, bytes(40_000 if large else 40))], producer_id=7)
    seen = SeenBatch(topic, 0, read_header(batch), batch[HEADER_SIZE:])
    return RequestSeen(
        *(0, 0, "produce", 9, len(batch), "c", "127.0.0.1:9", "User:a", 1, 1, None, -1, (seen,))
    )


async def test_records_of_requests_are_not_for_strangers_of_an_open_port(
    running: Running, admin_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without ACLs and without a token, on a broker that other machines reach and that is not there for tests."""
    caplog.set_level(logging.INFO)
    broker = running.broker
    broker.access = None
    path = f"http://{admin_address}/decisions?follow=true&requests=true&records=true"
    for allowed, admin_host, status in (
        (AllowFaults.AUTO, "0.0.0.0", HTTPStatus.FORBIDDEN),
        (AllowFaults.TRUE, "0.0.0.0", HTTPStatus.OK),
        (AllowFaults.AUTO, "127.0.0.1", HTTPStatus.OK),
    ):
        config = replace(
            broker.config,
            allow_faults=allowed,
            authorizer=Authorizer.NONE,
            admin_listen=Address(admin_host, 8080),
        )
        broker.config = config
        async with aiohttp.ClientSession() as session, session.get(path) as stream:
            assert stream.status == status
            if status is HTTPStatus.FORBIDDEN:
                assert "set admin_token_file" in (await stream.json())["error"]
    assert "User:ANONYMOUS records requests with their records" in caplog.text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("requests=true", "takes follow=true"),
        ("follow=true&records=true", "takes requests=true"),
        ("follow=true&requests=true&brokers=all", "ask each broker"),
        ("follow=true&requests=maybe", "takes true or false"),
    ],
)
async def test_what_cannot_be_followed_is_refused_with_the_remedy(
    admin_address: str, query: str, said: str
) -> None:
    answer = await get(admin_address, f"/decisions?{query}")
    assert answer.status == HTTPStatus.BAD_REQUEST
    assert said in answer.document["error"]


async def test_a_token_has_the_rights_of_its_principal(
    running: Running, admin_address: str, acls: AclEditor, tmp_path: Path
) -> None:
    """And nothing of what is allowed to clients that have not authenticated."""
    (tmp_path / "tokens").write_text(f"{TOKEN} change User:olga")
    running.broker.admin_tokens = Tokens(str(tmp_path / "tokens"))
    await acls.allow(AclOperation.DESCRIBE, "t")
    await acls.allow(AclOperation.DESCRIBE, "u", principal="User:olga")
    answer = await get(admin_address, "/topics", f"Authorization: Bearer {TOKEN}")
    assert topics_of(answer.document) == ["u"]
