"""The action `deny`: each API answers as to a client whose right was revoked, with an authorizer or without."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from echoless.broker.config.names import AllowFaults, Authorizer
from echoless.broker.faults.fields import RuleError
from echoless.broker.faults.reading_rules import read_rules
from echoless.broker.faults.served import ABOUT_ACLS, NEED_NO_RIGHT
from echoless.broker.metadata.topic import NewTopic
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode
from tests.broker.faults.lab import PRODUCER_ID, TOPIC, VERSION, Lab, batch, produce
from tests.broker.faults.test_error_responses import APIS, error_codes, filled
from tests.support.acls import AclEditor
from tests.support.in_process import Running, in_process
from tests.support.kio_requests import smallest_request
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, decode_whole, message, nested
from tests.support.raw_produce import PartitionData

DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
MINUTE = datetime.timedelta(minutes=1)
LEFT_OUT = {
    "describe_cluster",
    "describe_log_dirs",
    "list_groups",
    "list_transactions",
    "metadata",
    "offset_fetch",
}
"""APIs that answer a client without rights, some of their versions or requests, by leaving things out."""

NAMES_NOTHING = {ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_ID}
"""Answered to requests whose rows name a resource that no one can have a right to."""


async def test_a_producer_loses_its_right_for_a_while(lab: Lab, kafka: RawConnection) -> None:
    """29 and nothing stored; afterwards it goes on where it was."""
    assert await produce(kafka, batch(0)) == [0]
    name = lab.add({"type": "deny", "right": "Write"}, {"api": "produce", "topic": TOPIC})
    assert await produce(kafka, batch(1)) == [29]
    assert lab.verdicts() == [(0, "append")]
    assert lab.counts(name) == (1, 1)
    (hit,) = lab.hits()
    assert (hit.action, hit.detail) == ("deny", "right=write")
    assert [(one.producer_id, one.base_sequence) for one in hit.batches] == [(PRODUCER_ID, 1)]
    lab.broker.faults.clear()
    assert await produce(kafka, batch(1)) == [0]


async def test_only_the_topic_that_matches_is_denied(lab: Lab, kafka: RawConnection) -> None:
    """Another topic of the request is processed, and another right is there."""
    await lab.broker.services.topics.create(NewTopic(name="open"))
    other = PartitionData("open", 0, plain_batch([b"x"]).encode())
    rule = lab.add({"type": "deny", "right": "write"}, {"topic": TOPIC})
    answers = await kafka.produce(VERSION, -1, [batch(0), other])
    assert {one.topic: one.error for one in answers} == {TOPIC: 29, "open": 0}
    topics = (nested("metadata", 9, "MetadataRequestTopic")(name=TOPIC),)
    answer = await kafka.call(
        "metadata",
        9,
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )
    (topic,) = answer.topics
    assert topic.error_code == 0
    assert not topic.topic_authorized_operations & 1 << AclOperation.WRITE
    assert topic.topic_authorized_operations & 1 << AclOperation.READ
    assert lab.counts(rule) == (2, 2)


async def test_an_id_is_denied_with_its_own_code(lab: Lab, kafka: RawConnection) -> None:
    """31, as Kafka answers an idempotent producer without IdempotentWrite and Write."""
    lab.add("deny", {"api": "init_producer_id"}, times=1)
    for code in (31, 0):
        answer = await kafka.call(
            "init_producer_id", 1, transactional_id=None, transaction_timeout=MINUTE
        )
        assert answer.error_code == code


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(APIS.keys() - NEED_NO_RIGHT - ABOUT_ACLS))
async def test_every_api_answers_a_client_without_rights(
    lab: Lab, kafka: RawConnection, name: str
) -> None:
    """In every version: with a code, or by leaving out what it may not see."""
    rule = lab.add("deny", {"api": name})
    versions = range(APIS[name].version_min, APIS[name].version_max + 1)
    for version in versions:
        kafka.send_request(filled(smallest_request(name, version, elements=1)))
        entity, left_over = decode_whole(message(name, version, "Response"), await kafka.receive())
        assert left_over == 0, f"{name} v{version}"
        codes = set(error_codes(entity)) - {0}
        assert codes or name in LEFT_OUT, f"{name} v{version}"
        assert codes <= DENIED | NAMES_NOTHING, f"{name} v{version}: {codes}"
    assert lab.counts(rule) == (len(versions), len(versions))
    assert lab.broker.metrics.requests_failed_total == 0


async def test_what_needs_no_right_is_not_denied(lab: Lab, kafka: RawConnection) -> None:
    """ApiVersions of every client, and the APIs of ACLs, which say that there is no authorizer."""
    rule = lab.add("deny")
    assert (await kafka.call("api_versions", 0)).error_code == 0
    assert lab.counts(rule) == (0, 0)
    for name in sorted(ABOUT_ACLS):
        version = APIS[name].version_max
        kafka.send_request(smallest_request(name, version, elements=1))
        entity, _ = decode_whole(message(name, version, "Response"), await kafka.receive())
        assert not set(error_codes(entity)) & DENIED


async def test_a_message_of_the_native_port_is_denied(lab: Lab, native: NativeConnection) -> None:
    """With the codes of its twin; its next message has its rights again."""
    lab.add("deny", {"principal": "User:ANONYMOUS"}, times=2)
    fields = {"topic": TOPIC, "partition": 0, "records": [{"value": b"x"}]}
    assert (await native.call("produce", **fields))["error"]["code"] == 29
    assert (await native.call("init_producer_id"))["error"]["code"] == 31
    assert (await native.call("produce", **fields))["error"]["code"] == 0


@pytest.mark.parametrize(
    ("match", "action", "words"),
    [
        ({"api": "produce", "partition": 0}, "deny", "rights are to topics"),
        ({"api": "api_versions"}, "deny", "there is no right to deny"),
        ({"api": "sasl_handshake"}, "deny", "there is no right to deny"),
        ({}, {"type": "deny", "right": "fly"}, "action.right takes one of all, read, write"),
        ({"principal": "alice"}, "deny", "TYPE:NAME, such as User:alice"),
    ],
)
def test_a_denial_that_cannot_be_is_refused(
    match: dict[str, object], action: object, words: str
) -> None:
    """With the reason."""
    with pytest.raises(RuleError, match=words):
        read_rules({"match": match, "action": action})


class TestWithAuthorizer:
    @pytest.fixture
    async def running(self, tmp_path: Path) -> AsyncIterator[Running]:
        """A broker whose ACLs allow nothing yet."""
        settings = {"authorizer": Authorizer.ACL, "allow_faults": AllowFaults.TRUE}
        async with in_process(tmp_path, **settings) as running:
            await running.broker.services.topics.create(NewTopic(name=TOPIC))
            yield running

    async def test_nothing_is_allowed_that_acls_do_not_allow(
        self, running: Running, kafka: RawConnection
    ) -> None:
        """A rule only takes rights away, and a client's own rights are back when it ends."""
        lab, acls = Lab(running), AclEditor(running.broker.access)
        lab.add({"type": "deny", "right": "read"})
        assert await produce(kafka, batch(0)) == [29]
        await acls.allow(AclOperation.WRITE, TOPIC)
        assert await produce(kafka, batch(0)) == [0]
        lab.broker.faults.clear()
        lab.add({"type": "deny", "right": "write"}, times=1)
        assert await produce(kafka, batch(1)) == [29]
        assert await produce(kafka, batch(1)) == [0]
