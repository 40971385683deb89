"""The blocking connection, against brokers that answer, lie, hang and hang up."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from echoless.client.connection import BrokerConnection, ConnectionFailedError

_METADATA, _API_VERSIONS = 3, 18


@contextmanager
def _serving(answer: Callable[[bytes], bytes | None]) -> Iterator[int]:
    """A server for one client on a free port; each frame gets `answer`'s bytes, None hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        # A client that has read enough may reset the connection.
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while prefix := stream.read(4):
                answered = answer(stream.read(struct.unpack(">i", prefix)[0]))
                if answered is None:
                    return
                connection.sendall(answered)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()


def _framed(request: bytes, body: bytes, *, correlation_id: int | None = None) -> bytes:
    found: int = (
        struct.unpack_from(">i", request, 4)[0] if correlation_id is None else correlation_id
    )
    return struct.pack(">ii", len(body) + 4, found) + body


def _versions(request: bytes, *served: tuple[int, int, int]) -> bytes:
    """ApiVersions v0: no error, then API key, least and greatest version of each API; of a newer version only an error."""
    if struct.unpack_from(">hh", request)[1]:
        return struct.pack(">hi", 35, 0)
    return struct.pack(">hi", 0, len(served)) + b"".join(
        struct.pack(">hhh", *one) for one in served
    )


def _api_key(request: bytes) -> int:
    key: int = struct.unpack_from(">h", request)[0]
    return key


def test_newest_common_version_is_used() -> None:
    """A request is written in the newest version that both sides know; ApiVersions too, by an old broker's refusal."""
    asked: list[tuple[int, int]] = []

    def answer(request: bytes) -> bytes:
        asked.append(struct.unpack_from(">hh", request))
        if _api_key(request) == _API_VERSIONS:
            return _framed(request, _versions(request, (_METADATA, 0, 1)))
        brokers = struct.pack(">iih", 1, 5, 4) + b"host" + struct.pack(">ih", 9092, -1)
        return _framed(request, brokers + struct.pack(">ii", 5, 0))

    with _serving(answer) as port, BrokerConnection.open("127.0.0.1", port) as connection:
        metadata = connection.request("metadata", {"topics": None, "unknown_field": 1})
    assert [(b.node_id, b.host, b.port) for b in metadata.brokers] == [(5, "host", 9092)]
    assert asked == [(_API_VERSIONS, 3), (_API_VERSIONS, 0), (_METADATA, 1)]


def test_api_that_is_not_served_is_named() -> None:
    """Without a common version nothing is sent, and the error names the API."""
    with (
        _serving(lambda request: _framed(request, _versions(request, (_METADATA, 0, 1)))) as port,
        BrokerConnection.open("127.0.0.1", port) as connection,
        pytest.raises(ConnectionFailedError, match=r"does not serve create_topics$"),
    ):
        connection.request("create_topics", {})


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda _: None,
        lambda request: _framed(request, _versions(request), correlation_id=99),
    ],
    ids=["http", "hangs up", "another correlation id"],
)
def test_what_does_not_speak_kafka_is_said_so(answer: Callable[[bytes], bytes | None]) -> None:
    """Any other service on the port is recognised, and the message says which port to use."""
    with (
        _serving(answer) as port,
        pytest.raises(ConnectionFailedError, match="does not speak the Kafka protocol"),
    ):
        BrokerConnection.open("127.0.0.1", port)


def test_answer_that_cannot_be_read_is_an_error() -> None:
    """A truncated answer names the API and its version."""
    with (
        _serving(lambda request: _framed(request, b"\0\0")) as port,
        pytest.raises(ConnectionFailedError, match="the answer to api_versions v3 cannot be read"),
    ):
        BrokerConnection.open("127.0.0.1", port)


def test_broker_that_hangs_up_later_is_an_error() -> None:
    """A connection that ends in the middle is reported as such."""

    def answer(request: bytes) -> bytes | None:
        if _api_key(request) == _API_VERSIONS:
            return _framed(request, _versions(request, (_METADATA, 0, 1)))
        return None

    with (
        _serving(answer) as port,
        BrokerConnection.open("127.0.0.1", port) as connection,
        pytest.raises(ConnectionFailedError, match=r"ended the connection$"),
    ):
        connection.request("metadata", {"topics": None})


def test_silence_is_a_timeout() -> None:
    """A broker that accepts and says nothing does not hold a command forever."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with listener, pytest.raises(ConnectionFailedError, match=r"within 0\.05 s$"):
        BrokerConnection.open("127.0.0.1", port, timeout_s=0.05)


def test_unreachable_broker_is_named() -> None:
    """An unused port, or an unknown name, is reported with the address."""
    for host in ("127.0.0.1", "no-such-host.invalid"):
        with pytest.raises(ConnectionFailedError, match=f"no broker can be reached at {host}:1 "):
            BrokerConnection.open(host, 1)
