"""`echoless users`, over a broker and without one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.protocol.sasl.mechanism import PASSWORD_MECHANISMS
from tests.broker.authentication.log_in import log_in, with_users
from tests.cli.command import Command
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection

pytestmark = pytest.mark.slow

PASSWORD = "correct horse"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{PASSWORD}\n")
    return path


def test_the_first_user_of_a_new_data_directory(
    tmp_path: Path, secret: Path, echoless: Command
) -> None:
    """Can log in as soon as the broker runs, by each mechanism; the password is nowhere on disk."""
    place = ("--data-dir", tmp_path / "data")
    ran = echoless("users", "add", "alice", "--password-file", secret, *place)
    assert (ran.code, ran.out) == (0, "alice can log in by SCRAM-SHA-256, SCRAM-SHA-512\n"), ran.err

    async def play() -> None:
        async with with_users(tmp_path) as running:
            for mechanism in PASSWORD_MECHANISMS:
                connection = await RawConnection.open(running.kafka_address)
                assert (await log_in(connection, "alice", PASSWORD, mechanism)).error_code == 0
                await connection.close()

    asyncio.run(play())
    for path in (tmp_path / "data").rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes()
    listed = echoless("users", "list", *place, "--json").json
    both = {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}
    assert listed == [{"user": "alice", "credentials": both}]
    ran = echoless("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256", *place)
    assert (ran.code, ran.out) == (0, "alice can no longer log in by SCRAM-SHA-256\n")
    assert "SCRAM-SHA-512" in echoless("users", "list", *place).out
    assert echoless("users", "remove", "alice", *place).code == 0
    assert echoless("users", "list", *place, "--json").json == []
    ran = echoless("users", "remove", "alice", *place)
    assert ran.code == 1
    assert "alice has no such credential" in ran.err


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Echoless]:
    broker = Echoless(tmp_path)
    broker.start()
    yield broker
    broker.kill()


def test_users_of_a_running_broker(broker: Echoless, secret: Path, echoless: Command) -> None:
    """The directory is the broker's alone, which the message says; the broker is asked instead."""
    ran = echoless("users", "list", "--data-dir", broker.data_dir)
    assert ran.code == 1
    assert "is in use by" in ran.err
    place = ("--bootstrap-server", broker.kafka_address)
    one = ("--mechanism", "SCRAM-SHA-512", "--iterations", "4096", "--password-file", secret)
    assert echoless("users", "add", "a b*/c", *one, *place).code == 0
    listed = echoless("users", "list", *place, "--json").json
    assert listed == [{"user": "a b*/c", "credentials": {"SCRAM-SHA-512": 4096}}]
    assert echoless("users", "remove", "a b*/c", *place).code == 0
    ran = echoless("users", "add", "..", "--password-file", secret, *place)
    assert ran.code == 1
    assert "UNACCEPTABLE_CREDENTIAL" in ran.err


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
def test_a_file_without_a_password(
    tmp_path: Path, echoless: Command, content: bytes | None
) -> None:
    """Is named, and nothing is stored."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    place = ("--data-dir", tmp_path / "data")
    ran = echoless("users", "add", "alice", "--password-file", path, *place)
    assert ran.code == 1
    assert (
        f"--password-file: {'' if content in (b'', bytes([10])) else 'cannot read '}{path}"
        in ran.err
    )


def test_a_password_is_no_argument(tmp_path: Path, echoless: Command) -> None:
    """Every process of the machine could read it."""
    ran = echoless("users", "add", "alice", "--password", "x", "--data-dir", tmp_path)
    assert ran.code == 2
