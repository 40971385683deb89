"""Credentials that no tool of ours would have stored: another program may write the nodes too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from echoless.broker.authentication.credentials import Credentials
from echoless.broker.authentication.user_nodes import encode_credential, user_path
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.protocol.sasl.scram import ScramCredential, new_credential
from tests.broker.authentication.log_in import (
    PASSWORD,
    SHA_256,
    add_user,
    log_in,
    refresh,
    with_users,
)
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection


def credential(iterations: int) -> ScramCredential:
    """The password's, as far as that can be computed."""
    return new_credential(SHA_256, PASSWORD, min(max(iterations, 1), 20_000))._replace(
        iterations=iterations
    )


async def store(running: Running, user: str, iterations: int) -> None:
    """As another program would: without a look at the number."""
    config = {SHA_256: encode_credential(credential(iterations))}
    data = json.dumps({"version": 1, "config": config}).encode()
    await running.broker.tree.create(user_path(user), data)
    await refresh(running)


@pytest.mark.parametrize("mechanism", [Mechanism.PLAIN, SHA_256])
@pytest.mark.parametrize("iterations", [1, 4095, 16_385, 0, -1, 2**31, 10**30])
async def test_a_number_of_iterations_that_is_not_served_admits_no_one(
    tmp_path: Path, iterations: int, mechanism: Mechanism, caplog: pytest.LogCaptureFixture
) -> None:
    """The log-in fails like one with a wrong password, the log names the user, and others log in."""
    settings = {"connection_failed_authentication_delay_ms": "0"}
    async with with_users(tmp_path, "bob", **settings) as running:
        await store(running, "alice", iterations)
        connection = await RawConnection.open(running.kafka_address)
        answer = await log_in(connection, "alice", PASSWORD, mechanism)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await connection.close()
        connection = await RawConnection.open(running.kafka_address)
        assert (await log_in(connection, "bob", PASSWORD, mechanism)).error_code == 0
        await connection.close()
    assert "bug" not in caplog.text
    assert "'alice'" in caplog.text


async def test_unknown_users_are_shown_a_number_that_is_served(tmp_path: Path) -> None:
    """Even if most users have another."""
    async with with_users(tmp_path) as running:
        for number in range(3):
            await store(running, f"user-{number}", 1)
        await add_user(running, "bob")
        assert running.broker.logins is not None
        credentials = running.broker.logins.credentials
        for user in ("mallory", "user-0", "bob"):
            assert credentials.find(user, SHA_256).credential.iterations == 4096


async def test_unknown_users_have_the_numbers_of_known_ones(tmp_path: Path) -> None:
    """As often as these, so that a number that few have tells nothing; each name always the same one."""
    async with with_users(tmp_path) as running:
        for number in range(8):
            await store(running, f"user-{number}", 16_384 if number < 2 else 4096)
        assert running.broker.logins is not None
        credentials = running.broker.logins.credentials
        names = [f"unknown-{number}" for number in range(2000)]
        for find in (
            lambda name: credentials.find(name, SHA_256),
            lambda name: credentials.strongest(name)[1],
        ):
            shown = [find(name).credential.iterations for name in names]
            assert set(shown) == {4096, 16_384}
            assert 0.2 < shown.count(16_384) / len(names) < 0.3
            assert shown == [find(name).credential.iterations for name in names]
        before = [credentials.find(name, SHA_256).credential for name in names]
        await add_user(running, "one-more")
        after = [credentials.find(name, SHA_256).credential for name in names]
        assert sum(one != other for one, other in zip(before, after, strict=True)) < 200


async def test_known_users_cost_what_unknown_ones_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same number of hashes, so that the time of an answer tells nothing (`login_timing.py` measures it)."""
    async with with_users(tmp_path, "bob") as running:
        for number in range(20):
            await store(running, f"user-{number}", 4096 + number)
        assert running.broker.logins is not None
        credentials = running.broker.logins.credentials
        hashed: list[str] = []
        number_of = Credentials._number

        def counted(self: Credentials, text: str) -> bytes:
            hashed.append(text)
            return number_of(self, text)

        monkeypatch.setattr(Credentials, "_number", counted)
        for look_up in (lambda name: credentials.find(name, SHA_256), credentials.strongest):
            counts = set()
            for name in ("bob", "user-3", "mallory"):
                hashed.clear()
                look_up(name)
                counts.add(len(hashed))
            assert len(counts) == 1
            assert max(counts) < 10


async def test_a_user_who_cannot_log_in_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at every reading of all users."""
    async with with_users(tmp_path) as running:
        await store(running, "alice", 1)
        for _ in range(3):
            await refresh(running)
    assert caplog.text.count("'alice'") == 1


@pytest.mark.parametrize("iterations", [1, -1, 2**31, 10**30])
async def test_they_can_be_described(tmp_path: Path, iterations: int) -> None:
    """With their number, if Kafka's answer has a place for it."""
    async with with_users(tmp_path, "bob") as running:
        await store(running, "alice", iterations)
        connection = await RawConnection.open(running.kafka_address)
        assert (await log_in(connection, "bob")).error_code == 0
        answer = await connection.call("describe_user_scram_credentials", 0, users=None)
        shown = {row.user: row.credential_infos[0].iterations for row in answer.results}
        assert shown == {"bob": 4096, **({"alice": iterations} if iterations < 2**31 else {})}
        await connection.close()
