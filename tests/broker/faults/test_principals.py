"""Rules for one principal, and the end of its session on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from echoless.broker.faults.fields import RuleError
from echoless.broker.metadata.topic import NewTopic
from echoless.protocol.sasl.plain import plain_token
from tests.broker.authentication.log_in import PASSWORD, SHA_256, ends, log_in, with_users
from tests.broker.faults.lab import TOPIC, VERSION, Lab, batch, produce, send
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection
from tests.support.raw_client import RawConnection

ALICE = {"principal": "User:alice"}


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker that asks its clients to log in."""
    async with with_users(tmp_path, "alice", "bob") as running:
        await running.broker.services.topics.create(NewTopic(name=TOPIC))
        yield running


@pytest.fixture
def lab(running: Running) -> Lab:
    return Lab(running)


async def connect(lab: Lab, user: str) -> RawConnection:
    connection = await lab.connect()
    assert (await log_in(connection, user, mechanism=SHA_256)).error_code == 0
    return connection


async def test_a_rule_finds_its_principal(lab: Lab) -> None:
    """Decisions and hits say who it was; another client is left alone."""
    alice, bob = await connect(lab, "alice"), await connect(lab, "bob")
    rule = lab.add({"type": "error_after", "code": 7}, {"api": "produce", **ALICE})
    assert await produce(bob, batch(0, producer_id=1)) == [0]
    assert await produce(alice, batch(0, producer_id=2)) == [7]
    assert lab.counts(rule) == (1, 1)
    assert [hit.principal for hit in lab.hits()] == ["User:alice"]
    outcomes = lab.broker.decisions.latest(10)[::-1]
    assert [one.principal for one in outcomes] == ["User:bob", "User:alice"]
    for connection in (alice, bob):
        await connection.close()


async def test_a_session_ends_with_a_batch_in_flight(lab: Lab) -> None:
    """The request is answered, the one sent right after it finds no session, as when its time is over."""
    alice, bob = await connect(lab, "alice"), await connect(lab, "bob")
    lab.add("expire_login", {"api": "produce", **ALICE}, times=1)
    assert await produce(bob, batch(0, producer_id=1)) == [0]
    send(alice, batch(0))
    send(alice, batch(1))
    (answer,) = await alice.receive_produce(VERSION)
    assert answer.error == 0
    await ends(alice)
    assert lab.broker.metrics.sessions_expired_total == 1
    again = await connect(lab, "alice")
    assert await produce(again, batch(0)) == [0]
    assert await produce(again, batch(1)) == [0]
    assert lab.verdicts() == [(0, "append"), (0, "append"), (0, "duplicate"), (1, "append")]
    assert await produce(bob, batch(1, producer_id=1)) == [0]
    for connection in (again, bob):
        await connection.close()


async def test_a_session_that_was_ended_can_be_renewed(lab: Lab) -> None:
    """By a log-in on the same connection, although sessions have no end by themselves."""
    alice = await connect(lab, "alice")
    lab.add("expire_login", ALICE, times=1)
    assert await produce(alice, batch(0)) == [0]
    assert (await log_in(alice, mechanism=SHA_256)).error_code == 0
    assert await produce(alice, batch(1)) == [0]
    assert lab.broker.metrics.sessions_expired_total == 0
    await alice.close()


async def test_a_native_session_ends_too(lab: Lab, running: Running) -> None:
    """34 to the next message, and the end."""
    native = await NativeConnection.open(running.native_address)
    await native.call("sasl", mechanism="PLAIN", data=plain_token("alice", PASSWORD))
    lab.add("expire_login", ALICE, times=1)
    assert (await native.call("init_producer_id"))["error"]["code"] == 0
    native.send(type="init_producer_id")
    with pytest.raises((EOFError, ConnectionError)):
        await native.receive()
    assert running.broker.metrics.sessions_expired_total == 1


class TestWithoutLogIns:
    @pytest.fixture
    async def running(self, tmp_path: Path) -> AsyncIterator[Running]:
        async with with_users(tmp_path, listener_security_protocol_map="") as running:
            yield running

    async def test_there_is_no_session_to_end(self, lab: Lab) -> None:
        """The rule is refused with what to do."""
        with pytest.raises(RuleError, match="listener_security_protocol_map"):
            lab.add("expire_login")
