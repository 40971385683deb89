"""Asks a broker for leases: one `lease_pid` message on its own connection.

Leases are requested about once a day, so the connection is not kept. Any broker can answer; the
first answer is used. Works with Echoless only: Apache Kafka has no native port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from echoless.client.cluster import BrokerAddress
from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.lease import Lease, lease
from echoless.client.log_in import awaited_exchange_of, login_refused
from echoless.client.security import NO_SECURITY, Login, Security, TokenLogin
from echoless.client.sequenced_batch import Identity
from echoless.client.streams import open_streams
from echoless.client.topic_partition import TopicPartition
from echoless.protocol.errors import DecodeError, KafkaError
from echoless.protocol.framing import LENGTH_SIZE, frame_length
from echoless.protocol.native.answers import Answer
from echoless.protocol.native.codec import ENTRIES_MAX, decode_message, encode_message
from echoless.protocol.native.replication import read_error
from echoless.protocol.sasl.mechanism import SaslError

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Room for some 10,000 leases with long topic names and reasons."""
_EPOCH_MAX: Final = 2**15 - 1
_T = TypeVar("_T")


Leased = Mapping[TopicPartition, Lease | KafkaError]
"""A lease, or the reason why there is none, for each requested partition."""


class NoLeasesError(Exception):
    """No broker has answered; the message gives each one's reason.

    `is_refused`: one of them does not let this client in, and waiting does not help.
    """

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused


async def request_leases(
    addresses: Sequence[tuple[str, int]],
    partitions: Sequence[TopicPartition],
    *,
    asked_at: float,
    timeout_s: float = 10.0,
    security: Security = NO_SECURITY,
) -> Leased:
    """Leases for at most 10,000 partitions. Raises `NoLeasesError`.

    `addresses` are native ports, `asked_at` is the current time by the caller's clock.
    """
    assert len(partitions) <= ENTRIES_MAX, f"{len(partitions)} partitions in one message"
    message = {"type": "lease_pid", "partitions": [list(one) for one in partitions]}
    return await _ask_in_turn(
        addresses,
        message,
        timeout_s,
        security,
        lambda answer: read_leases(answer, partitions, asked_at),
    )


async def request_brokers(
    addresses: Sequence[tuple[str, int]],
    *,
    timeout_s: float = 10.0,
    security: Security = NO_SECURITY,
) -> tuple[BrokerAddress, ...]:
    """The native addresses of the cluster's brokers. Raises `NoLeasesError`."""
    message = {"type": "metadata", "topics": []}
    return await _ask_in_turn(addresses, message, timeout_s, security, _read_brokers)


async def _ask_in_turn(
    addresses: Sequence[tuple[str, int]],
    message: Mapping[str, Any],
    timeout_s: float,
    security: Security,
    read: Callable[[Mapping[str, Any]], _T],
) -> _T:
    """The first valid answer. Raises `NoLeasesError`."""
    reasons = []
    is_refused = False
    for host, port in addresses:
        try:
            async with asyncio.timeout(timeout_s):
                return read(await _ask(host, port, message, timeout_s, security))
        except TimeoutError:
            reasons.append(f"{host}:{port} did not answer within {timeout_s:g} s")
        except ConnectionFailedError as error:
            is_refused |= isinstance(error, AuthenticationError)
            reasons.append(str(error))
        except (OSError, EOFError, DecodeError, KafkaError) as error:
            reasons.append(f"{host}:{port}: {error or type(error).__name__}")
    reason = "no producer ids can be leased: " + "; ".join(reasons)
    raise NoLeasesError(reason, is_refused=is_refused)


def _read_brokers(answer: Mapping[str, Any]) -> tuple[BrokerAddress, ...]:
    error = read_error(answer)
    if error is not None:
        raise error
    brokers = [Answer("a broker", one) for one in Answer("the answer", answer).array("brokers")]
    return tuple(BrokerAddress(one.text("host"), one.integer("port", 1, 65535)) for one in brokers)


def read_leases(
    answer: Mapping[str, Any], partitions: Sequence[TopicPartition], asked_at: float
) -> Leased:
    """The leases in the answer. Raises `KafkaError` and `DecodeError` if it grants none at all."""
    error = read_error(answer)
    if error is not None:
        raise error
    fields = Answer("the answer", answer)
    lease_ms = fields.integer("lease_ms", 1)
    retention_ms = fields.integer("retention_ms", lease_ms)
    leased: dict[TopicPartition, Lease | KafkaError] = {}
    for wanted, row in zip(partitions, fields.array("partitions", len(partitions)), strict=True):
        entry = Answer("a lease", row)
        if (entry.text("topic"), entry.integer("partition", -(2**31))) != wanted:
            raise entry.complaint(f"it is not of {wanted}")
        leased[wanted] = read_error(row) or lease(
            Identity(entry.integer("pid"), entry.integer("generation", most=_EPOCH_MAX)),
            asked_at=asked_at,
            lease_ms=lease_ms,
            retention_ms=retention_ms,
        )
    return leased


async def _ask(
    host: str, port: int, message: Mapping[str, Any], timeout_s: float, security: Security
) -> dict[str, Any]:
    reader, writer = await open_streams(host, port, f"{host}:{port}", timeout_s, security)

    async def send(message: Mapping[str, Any]) -> dict[str, Any]:
        body = encode_message(message)
        writer.write(frame_length(len(body)) + body)
        size = int.from_bytes(await reader.readexactly(LENGTH_SIZE), signed=True)
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise DecodeError(f"an answer of {size} bytes: this is not a native port")
        return decode_message(await reader.readexactly(size))

    try:
        if security.login is not None:
            await _log_in(security.login, f"{host}:{port}", send)
        return await send(message)
    finally:
        writer.close()


async def _log_in(
    login: Login | TokenLogin, address: str, send: Callable[[Mapping[str, Any]], Awaitable[Any]]
) -> None:
    """Raises `AuthenticationError`, and what `send` does."""
    exchange = await awaited_exchange_of(login)
    try:
        while exchange.token is not None:
            token = {"type": "sasl", "mechanism": str(login.mechanism), "data": exchange.token}
            answer = await send(token)
            _check_login(answer)
            data = Answer("the log-in", answer).binary("data")
            await asyncio.to_thread(exchange.take, data)  # it computes for milliseconds
    except SaslError as error:
        raise login_refused(address, login, str(error)) from error


def _check_login(answer: Mapping[str, Any]) -> None:
    error = read_error(answer)
    if error is not None:
        raise SaslError(error.message)
