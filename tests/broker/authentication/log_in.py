"""Parts of the tests of log-ins: a broker with users, and a client that plays each step by itself."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.authentication.user_nodes import alter_user
from echoless.broker.config.loading import load_config
from echoless.protocol.sasl.mechanism import PASSWORD_MECHANISMS, Mechanism
from echoless.protocol.sasl.plain import plain_token
from echoless.protocol.sasl.scram import new_credential
from echoless.protocol.sasl.scram_client import ScramClient
from tests.support.in_process import Running, in_process
from tests.support.raw_client import ConnectionEndedError, RawConnection, message

ALL = ",".join(PASSWORD_MECHANISMS)
SHA_256 = Mechanism.SCRAM_SHA_256
PASSWORD = "correct horse"


@asynccontextmanager
async def with_users(
    directory: Path,
    *users: str,
    access: Any = None,
    listener_overrides: Any = None,
    **settings: str,
) -> AsyncIterator[Running]:
    """A broker whose first listener and native port have SASL, and these users, all with `PASSWORD`."""
    chosen = {
        "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT,NATIVE:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": ALL,
        **settings,
    }
    arguments = [part for item in chosen.items() for part in ("--set", "=".join(item))]
    config = load_config(arguments, {})
    values = {name: getattr(config, name) for name in chosen}
    values["listener_overrides"] = listener_overrides or {}
    async with in_process(directory, access=access, **values) as running:
        for user in users:
            await add_user(running, user)
        yield running


async def add_user(running: Running, user: str, password: str = PASSWORD) -> None:
    """Adds or changes a user, and waits until the broker knows it."""
    credentials = {
        mechanism: new_credential(mechanism, password, 4096)
        for mechanism in (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)
    }
    await alter_user(running.broker.tree, user, credentials)
    await refresh(running)


async def refresh(running: Running) -> None:
    assert running.broker.logins is not None
    await running.broker.logins.credentials.refresh()


async def handshake(connection: RawConnection, mechanism: str, version: int = 1) -> Any:
    return await connection.call("sasl_handshake", version, mechanism=mechanism)


async def authenticate(connection: RawConnection, token: bytes, version: int = 2) -> Any:
    return await connection.call("sasl_authenticate", version, auth_bytes=token)


async def log_in(
    connection: RawConnection,
    user: str = "alice",
    password: str = PASSWORD,
    mechanism: Mechanism = Mechanism.PLAIN,
    version: int = 2,
) -> Any:
    """The last answer of a whole log-in."""
    assert (await handshake(connection, mechanism)).error_code == 0
    if mechanism is Mechanism.PLAIN:
        return await authenticate(connection, plain_token(user, password), version)
    exchange = ScramClient(mechanism, user, password)
    first = await authenticate(connection, exchange.first(), version)
    assert first.error_code == 0
    assert version == 0 or not first.session_lifetime
    last = await authenticate(connection, exchange.final(first.auth_bytes), version)
    if last.error_code == 0:
        exchange.check(last.auth_bytes)
    return last


async def exchange_raw(connection: RawConnection, token: bytes) -> bytes | None:
    """The answer to a token without a request around it; None if the connection ends instead."""
    connection.send_bytes(struct.pack(">i", len(token)) + token)
    try:
        (size,) = struct.unpack(">i", await connection._reader.readexactly(4))
        return await connection._reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def ends(connection: RawConnection) -> None:
    """The broker closes it without another answer."""
    with pytest.raises(ConnectionEndedError):
        await connection.receive()
    await connection.close()


def send(connection: RawConnection, api: str, version: int, **fields: Any) -> None:
    connection.send_request(message(api, version, "Request")(**fields))
