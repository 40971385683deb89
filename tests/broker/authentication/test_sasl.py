"""Log-ins on the Kafka port, state by state. Numbers are those of the vectors in the specification."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.authentication import exchanges, session
from echoless.broker.handlers import sasl_handshake
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.network.fair_workers import FairWorkers
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.mechanism import PASSWORD_MECHANISMS, Mechanism
from echoless.protocol.sasl.plain import plain_token
from echoless.protocol.sasl.scram_client import ScramClient
from tests.broker.authentication.log_in import (
    PASSWORD,
    SHA_256,
    add_user,
    authenticate,
    ends,
    exchange_raw,
    handshake,
    log_in,
    refresh,
    send,
    with_users,
)
from tests.broker.faults.lab import Lab
from tests.support.in_process import Running
from tests.support.principals import Principals
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, nested
from tests.support.raw_produce import PartitionData

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE
VERSIONS_UNKNOWN = 99
RENEWED = {
    "connections_max_reauth_ms": "60000",
    "connection_failed_authentication_delay_ms": "0",
}
_PATIENCE_S = 120.0


async def metadata(connection: RawConnection) -> Any:
    return await connection.call("metadata", 1, topics=())


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("metadata", 1, {"topics": ()}),  # 1
        ("sasl_authenticate", 2, {"auth_bytes": b"\0alice\0pw"}),
        ("describe_cluster", 0, {"include_cluster_authorized_operations": False}),
    ],
)
async def test_nothing_passes_before_a_handshake(tmp_path: Path, api, version, fields) -> None:
    """The connection ends without an answer, also after ApiVersions (2)."""
    async with with_users(tmp_path) as running:
        for asks_first in (False, True):
            connection = await RawConnection.open(running.kafka_address)
            if asks_first:
                assert (await connection.call("api_versions", 0)).error_code == 0
            send(connection, api, version, **fields)
            await ends(connection)


async def test_versions_may_be_asked_once(tmp_path: Path) -> None:
    """But for an unknown version, which is answered with 35 (3); a second time is the end."""
    async with with_users(tmp_path) as running:
        connection = await RawConnection.open(running.kafka_address)
        connection.send(18, VERSIONS_UNKNOWN, b"", flexible=True)
        assert struct.unpack_from(">h", await connection.receive()) == (35,)
        assert (await connection.call("api_versions", 0)).error_code == 0
        send(connection, "api_versions", 0)
        await ends(connection)


async def test_a_mechanism_that_is_off(tmp_path: Path) -> None:
    """33 with those that are on, and the end (4)."""
    async with with_users(tmp_path, sasl_enabled_mechanisms="PLAIN") as running:
        for version in (0, 1):
            connection = await RawConnection.open(running.kafka_address)
            answer = await handshake(connection, "SCRAM-SHA-256", version)
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert answer.mechanisms == ("PLAIN",)
            await ends(connection)


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("metadata", 1, {"topics": ()}),  # 5
        ("api_versions", 0, {}),
        ("sasl_handshake", 1, {"mechanism": "PLAIN"}),
        ("describe_cluster", 0, {"include_cluster_authorized_operations": False}),
    ],
)
async def test_another_api_in_the_middle_of_a_log_in(tmp_path: Path, api, version, fields) -> None:
    """34 in the response of its own, and the end."""
    async with with_users(tmp_path) as running:
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "PLAIN")
        answer = await connection.call(api, version, **fields)
        if api != "metadata":  # which has no error of its own in version 1
            assert answer.error_code == ILLEGAL
        await ends(connection)


async def test_a_refusal_before_a_log_in_tells_only_what_it_was_told(tmp_path: Path) -> None:
    """No topic that the request does not name, no name for an id, and nothing of the cluster."""
    access = Principals()
    async with with_users(tmp_path, access=access) as running:
        await running.broker.services.topics.create(NewTopic(name="secret"))
        topic_id = running.broker.registry.topics["secret"].topic_id

        async def refused(api: str, version: int, **fields: Any) -> Any:
            connection = await RawConnection.open(running.kafka_address)
            await handshake(connection, "PLAIN")
            answer = await connection.call(api, version, **fields)
            await ends(connection)
            return answer

        answer = await refused("metadata", 1, topics=None)
        assert (answer.topics, answer.brokers, answer.controller_id) == ((), (), -1)
        assert (await refused("metadata", 0, topics=())).topics == ()
        wanted = nested("metadata", 12, "MetadataRequestTopic")
        by_name, by_id = wanted(topic_id=None, name="secret"), wanted(topic_id=topic_id, name=None)
        answer = await refused(
            "metadata",
            12,
            topics=(by_name, by_id),
            include_topic_authorized_operations=False,
        )
        assert (answer.brokers, answer.cluster_id, answer.controller_id) == ((), None, -1)
        assert [(one.name, one.topic_id, one.error_code) for one in answer.topics] == [
            ("secret", None, ILLEGAL),
            (None, topic_id, ILLEGAL),
        ]
        answer = await refused("describe_cluster", 0, include_cluster_authorized_operations=False)
        assert (answer.brokers, answer.cluster_id, answer.controller_id) == ((), "", -1)
        state = nested("delete_topics", 6, "DeleteTopicState")(name=None, topic_id=topic_id)
        answer = await refused("delete_topics", 6, topics=(state,), timeout=timedelta(0))
        assert [(one.name, one.error_code) for one in answer.responses] == [(None, ILLEGAL)]


async def test_a_large_request_in_the_middle_of_a_log_in_is_the_end(tmp_path: Path) -> None:
    """Without an answer, because it would be decoded for no one; tokens may be larger."""
    async with with_users(tmp_path) as running:
        for names, is_answered in (10, True), (400, False):
            connection = await RawConnection.open(running.kafka_address)
            await handshake(connection, "PLAIN")
            wanted = nested("metadata", 1, "MetadataRequestTopic")
            topics = tuple(wanted(name=f"topic-{number:04}") for number in range(names))
            send(connection, "metadata", 1, topics=topics)
            if is_answered:
                answer = await connection.receive_response("metadata", 1)
                assert [one.error_code for one in answer.topics] == [ILLEGAL] * names
            await ends(connection)
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "PLAIN")
        assert (await authenticate(connection, b"x" * 100_000)).error_code == FAILED
        await ends(connection)


async def test_tokens_without_requests(tmp_path: Path) -> None:
    """After a handshake of version 0, as clients before KIP-152 do it (6, 7)."""
    async with with_users(tmp_path, "alice") as running:
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "PLAIN", 0)
        assert await exchange_raw(connection, plain_token("alice", PASSWORD)) == b""
        assert (await metadata(connection)).brokers
        await connection.close()
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, SHA_256, 0)
        exchange = ScramClient(SHA_256, "alice", PASSWORD)
        first = await exchange_raw(connection, exchange.first())
        assert first is not None
        last = await exchange_raw(connection, exchange.final(first))
        assert last is not None
        exchange.check(last)
        assert (await metadata(connection)).brokers
        await connection.close()
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "PLAIN", 0)
        began = time.monotonic()
        assert await exchange_raw(connection, plain_token("alice", "wrong")) is None
        assert time.monotonic() - began >= 0.1
        await connection.close()


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("token", [b"", b"\x01", b"n,,n=nobody,r=x", b"\0alice\0wrong"])
async def test_a_token_without_a_request_is_no_request_of_an_api(
    tmp_path: Path, mechanism: str, token: bytes
) -> None:
    """Its bytes are not taken for the key of one: the metrics would have the latency of an API that there is not."""
    async with with_users(
        tmp_path, "alice", connection_failed_authentication_delay_ms="0"
    ) as running:
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, mechanism, 0)
        await exchange_raw(connection, token)
        await connection.close()
        metrics = running.broker.metrics
    assert set(metrics.latencies) == {sasl_handshake.API.key}
    assert not metrics.requests_failed_total


async def test_a_request_of_no_api_in_the_middle_of_a_log_in(tmp_path: Path) -> None:
    """It ends the connection, and the metrics have no latency of it."""
    async with with_users(tmp_path, "alice") as running:
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "PLAIN")
        connection.send_bytes(struct.pack(">ihhih", 10, 97, 0, 1, -1))
        await ends(connection)
        assert set(running.broker.metrics.latencies) == {sasl_handshake.API.key}


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_log_in(tmp_path: Path, mechanism: Mechanism, version: int) -> None:
    """The session has no end (8), and requests are the user's."""
    principals = Principals()
    async with with_users(tmp_path, "alice", access=principals) as running:
        connection = await RawConnection.open(running.kafka_address)
        answer = await log_in(connection, mechanism=mechanism, version=version)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert version == 0 or not answer.session_lifetime
        await metadata(connection)
        large = "x" * 600_000  # more than is allowed before
        connection.send(3, 1, struct.pack(">i", 20) + _strings(large, 20), flexible=False)
        await connection.close()
    assert principals.seen[0] == "User:alice"
    assert running.broker.metrics.logins_total == 1


def _strings(text: str, count: int) -> bytes:
    part = text[: 600_000 // count].encode()
    return (struct.pack(">h", len(part)) + part) * count


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("mallory", PASSWORD)], ids=["wrong", "unknown"]
)
async def test_a_log_in_that_fails(
    tmp_path: Path, mechanism: Mechanism, user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    """58, the same for both, not before its delay, and the end (9, 16); the password is logged nowhere."""
    async with with_users(tmp_path, "alice") as running:
        connection = await RawConnection.open(running.kafka_address)
        began = time.monotonic()
        answer = await log_in(connection, user, password, mechanism)
        assert time.monotonic() - began >= 0.1
        assert answer.error_code == FAILED
        assert user not in answer.error_message
        assert (answer.error_message, answer.auth_bytes) == (
            "Authentication failed: Invalid username or password"
            if mechanism is Mechanism.PLAIN
            else "Authentication failed during authentication due to invalid credentials with "
            f"SASL mechanism {mechanism}",
            b"",
        )
        await ends(connection)
        assert running.broker.metrics.logins_failed_total == 1
    assert f"its log-in by {mechanism} has failed" in caplog.text
    assert password not in caplog.text


async def test_nothing_is_read_while_a_failure_is_held_back(tmp_path: Path) -> None:
    """A second try behind the first is not even looked at."""
    async with with_users(tmp_path, "alice") as running:
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "PLAIN")
        send(connection, "sasl_authenticate", 2, auth_bytes=plain_token("alice", "wrong"))
        send(connection, "sasl_authenticate", 2, auth_bytes=plain_token("alice", PASSWORD))
        send(connection, "metadata", 1, topics=())
        first = await connection.receive_response("sasl_authenticate", 2)
        assert first.error_code == FAILED
        await ends(connection)
        assert running.broker.metrics.logins_total == 0


async def test_no_one_acts_as_another(tmp_path: Path) -> None:
    """An authorization id that is not the user's (10, CVE-2017-12610)."""
    async with with_users(tmp_path, "alice", "bob") as running:
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "PLAIN")
        answer = await authenticate(connection, f"bob\0alice\0{PASSWORD}".encode())
        assert answer.error_code == FAILED
        assert "different from username" in answer.error_message
        await ends(connection)


@pytest.mark.parametrize("has_begun", [False, True])
async def test_frames_are_small_before_a_log_in(tmp_path: Path, has_begun: bool) -> None:
    """524,289 bytes are the end (11), announced or sent."""
    async with with_users(tmp_path) as running:
        connection = await RawConnection.open(running.kafka_address)
        if has_begun:
            await handshake(connection, "PLAIN")
        connection.send_bytes(struct.pack(">i", 524_289))
        await ends(connection)


@pytest.mark.parametrize("mechanism", ["PLAIN"])
async def test_a_log_in_and_requests_in_one_write(tmp_path: Path, mechanism: str) -> None:
    """Three answers in order: the last is processed once the password was checked (12)."""
    principals = Principals()
    async with with_users(tmp_path, "alice", access=principals) as running:
        connection = await RawConnection.open(running.kafka_address)
        send(connection, "sasl_handshake", 1, mechanism=mechanism)
        send(connection, "sasl_authenticate", 2, auth_bytes=plain_token("alice", PASSWORD))
        send(connection, "metadata", 1, topics=())
        assert (await connection.receive_response("sasl_handshake", 1)).error_code == 0
        assert (await connection.receive_response("sasl_authenticate", 2)).error_code == 0
        assert (await connection.receive_response("metadata", 1)).brokers
        await connection.close()
    assert principals.seen == ["User:alice"]


@pytest.mark.parametrize(
    "data",
    [
        b"\0\x11\0\1\0\0\0\1\xff\xff",  # no mechanism
        b"\0\x11\0\1\0\0\0\1\xff\xff\0\x09PLAIN",
        b"\0\x11\0\1\0\0\0\1\xff\xff\xff\xff",
        b"\0\x11\0\2\0\0\0\1\xff\xff\0\5PLAIN",
        b"\0\x11\0\1\0\0\0\1\xff\xff\0\1\xff",
        b"`\x82\x02",  # the first token of a GSSAPI client of 0.9
        b"",
    ],
)
async def test_what_is_no_request_is_the_end(tmp_path: Path, data: bytes) -> None:
    """Or a handshake that cannot be read."""
    async with with_users(tmp_path) as running:
        connection = await RawConnection.open(running.kafka_address)
        connection.send_bytes(struct.pack(">i", len(data)) + data)
        await ends(connection)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\0\7x", b"\0\xff\xff\xff\xff\x0f", b"\xff" * 9])
async def test_a_token_that_cannot_be_read_is_the_end(
    tmp_path: Path, version: int, body: bytes
) -> None:
    """In any version, and in one that is not served."""
    async with with_users(tmp_path) as running:
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "PLAIN")
        connection.send(36, version, body, flexible=version > 1)
        await ends(connection)


async def test_a_credential_that_is_deleted(tmp_path: Path) -> None:
    """The open connection goes on, a new log-in fails (20); so does one with the old password."""
    async with with_users(tmp_path, "alice", "bob") as running:
        connection = await RawConnection.open(running.kafka_address)
        await log_in(connection)
        await running.broker.tree.delete("/config/users/alice")
        await refresh(running)
        assert (await metadata(connection)).brokers
        await connection.close()
        connection = await RawConnection.open(running.kafka_address)
        assert (await log_in(connection)).error_code == FAILED
        await connection.close()
        await add_user(running, "bob", "another")
        connection = await RawConnection.open(running.kafka_address)
        assert (await log_in(connection, "bob", PASSWORD, SHA_256)).error_code == FAILED
        await connection.close()
        connection = await RawConnection.open(running.kafka_address)
        assert (await log_in(connection, "bob", "another", SHA_256)).error_code == 0
        await connection.close()


async def test_an_unknown_user_has_the_salt_of_a_known_one(tmp_path: Path) -> None:
    """The same each time, of the usual form and strength, and another for another name."""
    async with with_users(tmp_path, "alice") as running:
        assert running.broker.logins is not None
        credentials = running.broker.logins.credentials
        real, made_up = (credentials.find(name, SHA_256) for name in ("alice", "mallory"))
        assert (real.is_real, made_up.is_real) == (True, False)
        assert made_up.credential == credentials.find("mallory", SHA_256).credential
        assert made_up.credential.salt != credentials.find("eve", SHA_256).credential.salt
        assert abs(len(made_up.credential.salt) - len(real.credential.salt)) <= 3
        assert made_up.credential.salt.isalnum()
        assert made_up.credential.iterations == real.credential.iterations


async def test_a_log_in_again_when_sessions_have_no_end(tmp_path: Path) -> None:
    """34, and the connection stays (27); the same for a token without a handshake."""
    async with with_users(tmp_path, "alice") as running:
        connection = await RawConnection.open(running.kafka_address)
        await log_in(connection)
        assert (await handshake(connection, "PLAIN")).error_code == ILLEGAL
        assert (await authenticate(connection, b"")).error_code == ILLEGAL
        assert (await metadata(connection)).brokers
        await connection.close()


async def test_a_listener_without_sasl_has_nothing_to_log_in_for(kafka: RawConnection) -> None:
    """34, as Kafka answers, and the connection stays."""
    assert (await handshake(kafka, "PLAIN")).error_code == ILLEGAL
    assert (await authenticate(kafka, b"\0alice\0pw")).error_code == ILLEGAL
    assert (await metadata(kafka)).brokers


Later = Callable[[float], None]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """Moves the clock of sessions on by so many seconds."""
    passed = 0.0

    def move(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(session, "monotonic", lambda: time.monotonic() + passed)
    return move


class TestAgain:
    """Logging in again on the same connection (KIP-368)."""

    async def test_a_session_that_has_ended(self, tmp_path: Path, later: Later) -> None:
        """Any request but a handshake is the end, counted (24)."""
        async with with_users(tmp_path, "alice", connections_max_reauth_ms="60000") as running:
            connection = await RawConnection.open(running.kafka_address)
            answer = await log_in(connection)
            assert answer.session_lifetime.total_seconds() == 60
            assert (await metadata(connection)).brokers
            later(60)
            send(connection, "metadata", 1, topics=())
            await ends(connection)
            assert running.broker.metrics.sessions_expired_total == 1

    @pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
    async def test_it_is_renewed(self, tmp_path: Path, later: Later, mechanism: Mechanism) -> None:
        """With a new lifetime, on the same connection (25); not more than once a second."""
        async with with_users(tmp_path, "alice", connections_max_reauth_ms="60000") as running:
            connection = await RawConnection.open(running.kafka_address)
            await log_in(connection, mechanism=mechanism)
            assert (await handshake(connection, mechanism)).error_code == ILLEGAL
            later(1)
            answer = await log_in(connection, mechanism=mechanism)
            assert (answer.error_code, answer.session_lifetime.total_seconds()) == (0, 60)
            assert (await metadata(connection)).brokers
            await connection.close()
            assert running.broker.metrics.logins_total == 2

    async def test_no_one_becomes_another(self, tmp_path: Path, later: Later) -> None:
        """58 and the end, for another user (26); the end for another mechanism."""
        async with with_users(
            tmp_path, "alice", "bob", connections_max_reauth_ms="60000"
        ) as running:
            connection = await RawConnection.open(running.kafka_address)
            other = await RawConnection.open(running.kafka_address)
            await log_in(connection, mechanism=SHA_256)
            await log_in(other, mechanism=SHA_256)
            later(1)
            answer = await log_in(connection, "bob", mechanism=SHA_256)
            assert answer.error_code == FAILED
            assert "Cannot change principals" in answer.error_message
            await ends(connection)
            assert (await handshake(other, "PLAIN")).error_code == 0
            send(other, "sasl_authenticate", 2, auth_bytes=plain_token("alice", PASSWORD))
            await ends(other)

    @pytest.mark.parametrize("mechanism", ["PLAIN", "NONE"])
    async def test_a_failed_one_follows_the_answers_in_flight(
        self, tmp_path: Path, later: Later, mechanism: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A fetch that waits gets its record, the client then 58 (or 33), and the end."""
        monkeypatch.setattr("echoless.broker.network.connection.LINGER_S", 60.0)
        async with with_users(tmp_path, "alice", **RENEWED) as running:
            connection = await self.fetching(running, later)
            send(connection, "sasl_handshake", 1, mechanism=mechanism)
            send(connection, "sasl_authenticate", 2, auth_bytes=plain_token("alice", "wrong"))
            other = await RawConnection.open(running.kafka_address)
            assert (await log_in(other)).error_code == 0
            if mechanism == "PLAIN":
                async with asyncio.timeout(_PATIENCE_S):
                    while not running.broker.metrics.logins_failed_total:  # noqa: ASYNC110 - a counter
                        await asyncio.sleep(0.01)
            batch = plain_batch([b"value"]).encode()
            (stored,) = await other.produce(9, -1, [PartitionData("t", 0, batch)])
            assert stored.error == 0
            await other.close()
            answer = await connection.receive_response("fetch", 11)
            assert answer.responses[0].partitions[0].records
            answer = await connection.receive_response("sasl_handshake", 1)
            if mechanism == "PLAIN":
                assert answer.error_code == 0
                answer = await connection.receive_response("sasl_authenticate", 2)
                assert answer.error_code == FAILED
            else:
                assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            await ends(connection)

    async def test_a_failed_one_does_not_wait_for_them_long(
        self, tmp_path: Path, later: Later, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The end comes without the answers, if they take longer."""
        monkeypatch.setattr("echoless.broker.network.connection.LINGER_S", 0.01)
        async with with_users(tmp_path, "alice", **RENEWED) as running:
            connection = await self.fetching(running, later)
            send(connection, "sasl_handshake", 1, mechanism="PLAIN")
            send(connection, "sasl_authenticate", 2, auth_bytes=plain_token("alice", "wrong"))
            await ends(connection)

    async def fetching(self, running: Running, later: Later) -> RawConnection:
        """A connection that may log in again, and waits for a record of the topic `t`."""
        await running.broker.services.topics.create(NewTopic(name="t"))
        connection = await RawConnection.open(running.kafka_address)
        assert (await log_in(connection)).error_code == 0
        later(1)
        row = nested("fetch", 11, "FetchPartition")(
            partition=0, fetch_offset=0, partition_max_bytes=1000
        )
        send(
            connection,
            "fetch",
            11,
            max_wait=timedelta(minutes=1),
            min_bytes=1,
            topics=(nested("fetch", 11, "FetchTopic")(topic="t", partitions=(row,)),),
            forgotten_topics_data=(),
        )
        return connection


async def test_a_flood_of_passwords_from_one_address_delays_another_by_one_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Addresses take turns at the threads that check passwords."""
    may_finish, all_wait = threading.Event(), asyncio.Event()
    checked: list[str] = []
    calls: list[str] = []

    def check(_mechanism: Mechanism, _credential: object, password: str) -> bool:
        checked.append(password)
        return not may_finish.wait(_PATIENCE_S)

    class CountingWorkers(FairWorkers):
        async def run(self, address: str, function: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(address)
            if len(calls) == 5:
                all_wait.set()
            return await super().run(address, function, *args, **kwargs)

    monkeypatch.setattr(session, "FairWorkers", CountingWorkers)
    monkeypatch.setattr(exchanges, "fits_password", check)
    monkeypatch.setattr(session, "CHECKS_MAX", 1)
    async with with_users(tmp_path, "alice") as running:
        flood = [await RawConnection.open(running.kafka_address) for _ in range(4)]
        other = await RawConnection.open(running.kafka_address, source="127.0.0.2")
        for connection in (*flood, other):
            assert (await handshake(connection, "PLAIN")).error_code == 0
            password = "theirs" if connection is other else "mine"
            send(connection, "sasl_authenticate", 2, auth_bytes=plain_token("alice", password))
        await all_wait.wait()
        may_finish.set()
        for connection in (*flood, other):
            answer = await connection.receive_response("sasl_authenticate", 2)
            assert answer.error_code == FAILED
    assert checked.index("theirs") <= 2


async def test_fault_rules_do_not_act_before_a_log_in(tmp_path: Path) -> None:
    """They would answer a client that no one knows."""
    async with with_users(tmp_path, "alice") as running:
        lab = Lab(running)
        rule = lab.add("close_before", {"api": "metadata"})
        for begins in (False, True):
            connection = await lab.connect()
            if begins:
                await handshake(connection, "PLAIN")
            send(connection, "metadata", 1, topics=())
            if begins:
                await connection.receive()
            await ends(connection)
        assert lab.counts(rule) == (0, 0)
        connection = await lab.connect()
        assert (await log_in(connection)).error_code == 0
        send(connection, "metadata", 1, topics=())
        await ends(connection)
        assert lab.counts(rule) == (1, 1)


async def test_many_connections_that_only_announce_take_no_memory(tmp_path: Path) -> None:
    """No memory is reserved for bytes that have not arrived (CVE-2022-34917)."""
    async with with_users(tmp_path) as running:
        connections = [await RawConnection.open(running.kafka_address) for _ in range(50)]
        for one in connections:
            one.send_bytes(struct.pack(">i", 524_288))
        probe = await RawConnection.open(running.kafka_address)
        await probe.call("api_versions", 0)
        assert running.broker.request_memory.used == 0
        for one in (*connections, probe):
            await one.close()
