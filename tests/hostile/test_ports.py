"""Bytes that are no requests, on the ports of a running broker."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from echoless.broker.handlers.apis import API_BY_NAME
from echoless.broker.network.server import most_connections
from tests.hostile.target import (
    API_VERSIONS,
    admin,
    assert_quiet_log,
    connect,
    framed,
    header,
    is_answering,
    open_files,
    resident_bytes,
    talk,
    until,
)
from tests.protocol.test_request_walk import BOTH_ENCODINGS, SERVED, encoded
from tests.support.echoless import Echoless

APIS = API_BY_NAME
GROWTH_BYTES_MAX = 24 * 1024 * 1024


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoless]:
    """One broker for all attacks of this file."""
    broker = Echoless(tmp_path_factory.mktemp("hostile"), {"auto_create_topics_enable": "false"})
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def target(running: Echoless) -> Iterator[Echoless]:
    """The broker; after each attack it must answer, and have given everything back."""
    assert is_answering(running.kafka_address)
    files, memory = open_files(running), resident_bytes(running)
    yield running
    assert is_answering(running.kafka_address)
    until(lambda: open_files(running) <= files, "sockets were closed")
    grown = resident_bytes(running) - memory
    assert grown < GROWTH_BYTES_MAX, f"{grown} bytes more than before"
    assert_quiet_log(running)


def new_lines(broker: Echoless, before: str) -> str:
    return broker.process.log()[len(before) :]


REFUSED = {
    "TLS": (bytes.fromhex("16030102000100") + bytes(40), "looks like TLS"),
    "HTTP": (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "looks like HTTP"),
    "negative length": (struct.pack(">i", -1), "a frame of -1 bytes"),
    "oversized": (struct.pack(">i", 2**31 - 1), "a frame of 2147483647 bytes"),
    "empty frame": (framed(b""), "no whole header"),
    "short header": (framed(b"\0\x12\0"), "no whole header"),
    "unknown API": (framed(header(999, 0, flexible=False)), "API key 999 is not served"),
    "negative API": (framed(header(-1, 0, flexible=False)), "API key -1 is not served"),
    "old version": (framed(header(1, 0, flexible=False)), "fetch version 0 is not served"),
    "future version": (framed(header(3, 99, flexible=True)), "metadata version 99 is not served"),
    "client id not UTF-8": (framed(header(18, 0, b"\xff\xfe", flexible=False)), "not UTF-8"),
    "client id past the end": (framed(struct.pack(">hhih", 18, 0, 1, 500)), "client id of 500"),
    "tagged fields": (
        framed(header(3, 12, flexible=False) + b"\xff\xff\xff\xff\x0f"),
        "4294967295 tagged fields",
    ),
    "claimed count": (
        framed(header(3, 1, flexible=False) + struct.pack(">i", 2**31 - 1)),
        "an array of 2147483647 elements",
    ),
    "claimed compact count": (
        framed(header(3, 12, flexible=True) + b"\xff\xff\xff\xff\x0f"),
        "an array of 4294967294 elements",
    ),
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=REFUSED)
def test_bad_bytes_end_the_connection_with_a_reason(target: Echoless, data, reason):
    """One log line names the client and the reason; the client sees the end of the stream."""
    before = target.process.log()
    assert talk(target.kafka_address, data, finish=False) == b""
    until(lambda: reason in new_lines(target, before), reason)
    (line,) = [one for one in new_lines(target, before).splitlines() if reason in one]
    assert "from 127.0.0.1:" in line


def test_a_client_id_cannot_forge_a_log_line(target: Echoless):
    """Line breaks in a client id are harmless, whatever is logged of it."""
    client_id = b"a\r\n2026-01-01 INFO forged\x1b[31m"
    assert talk(target.kafka_address, framed(header(18, 0, client_id, flexible=False)))
    talk(target.kafka_address, framed(header(999, 0, client_id, flexible=False)))


@pytest.mark.parametrize(("name", "version"), BOTH_ENCODINGS)
def test_a_cut_request_ends_its_own_connection_only(target: Echoless, name, version):
    """Cut in its middle, with a frame length that fits and with one that promises more."""
    api = APIS[name]
    whole = header(api.key, version, flexible=api.is_flexible(version)) + encoded(name, version, 1)
    cut = whole[: len(whole) - max(1, len(encoded(name, version, 1)) // 2)]
    assert talk(target.kafka_address, framed(cut)) == b""
    assert talk(target.kafka_address, struct.pack(">i", len(whole)) + cut) == b""


@pytest.mark.slow
def test_every_request_cut_at_every_byte(target: Echoless):
    """All APIs, versions and positions; each on a separate connection."""
    for name, version in SERVED:
        api = APIS[name]
        start = header(api.key, version, flexible=api.is_flexible(version))
        body = encoded(name, version, 1)
        for size in range(len(body)):
            answer = talk(target.kafka_address, framed(start + body[:size]))
            assert answer == b"", f"{name} v{version} cut at {size}"


def test_connections_opened_and_dropped_leave_nothing(target: Echoless):
    """Hundreds that send nothing, half a length, half a frame, or reset at once."""
    for number in range(200):
        with connect(target.kafka_address) as connection:
            connection.sendall((b"", b"\0\0", b"\0\0\0\x40abc", API_VERSIONS)[number % 4])
            if number % 3 == 0:
                reset = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)


def test_a_crawling_client_disturbs_nobody(target: Echoless):
    """One byte at a time makes a request all the same, while others are answered."""
    crawlers = [connect(target.kafka_address) for _ in range(20)]
    for byte in API_VERSIONS:
        for crawler in crawlers:
            crawler.sendall(bytes([byte]))
        assert is_answering(target.kafka_address)
    for crawler in crawlers:
        with crawler:
            assert len(crawler.recv(4)) == 4


def test_large_frames_that_never_come_take_no_memory(target: Echoless):
    """A claim of 100 MB reserves room in the budget, not in memory; it ends with its connection."""
    memory = resident_bytes(target)
    claims = [connect(target.kafka_address) for _ in range(8)]
    for claim in claims:
        claim.sendall(struct.pack(">i", 100_000_000) + bytes(1000))
    assert is_answering(target.kafka_address)
    assert resident_bytes(target) - memory < GROWTH_BYTES_MAX
    for claim in claims:
        claim.close()


def test_a_half_closed_client_still_gets_what_it_asked_for(target: Echoless):
    """The end of the requests is not the end of the answers that are due."""
    assert len(talk(target.kafka_address, API_VERSIONS * 3)) > 60


UNREADABLE = {
    "nothing": b"",
    "nil": b"\xc0",
    "never used byte": b"\xc1",
    "array": msgpack.packb([1, 2]),
    "names that are numbers": msgpack.packb({1: 2}),
    "deep nesting": msgpack.packb({"type": "hello"})[:-5] + b"\x91" * 60_000 + b"\xc0",
    "deep maps": b"\x81\xa1x" * 50_000 + b"\xc0",
    "claimed map": b"\xdf\xff\xff\xff\xff",
    "claimed array": b"\x81\xa1x\xdd\xff\xff\xff\xff",
    "claimed text": b"\x81\xa1x\xdb\xff\xff\xff\xff",
    "claimed bytes": b"\x81\xa1x\xc6\xff\xff\xff\xff",
    "wrong types": msgpack.packb({"type": 5, "correlation_id": "x"}),
    "not UTF-8": b"\x81\xa4type\xa2\xff\xfe",
    "huge correlation id": msgpack.packb({"type": "hello", "correlation_id": 2**64 - 1, "x": {}}),
    "extension": b"\x81\xa4type\xd4\x01\x02",
    "left over": msgpack.packb({"type": "hello"}) + b"\x00",
    "a Kafka request": API_VERSIONS[4:],
}


@pytest.mark.parametrize("message", UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_native_messages_are_answered(target: Echoless, message):
    """Frames are whole, so the client gets an error for each."""
    answer = talk(target.native_address, framed(message))
    assert "error" in msgpack.unpackb(answer[4:], strict_map_key=False)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/topics/x/partitions/99/producers",
        "/decisions?n=-1",
        "/decisions?n=abc",
        "/decisions?n=1&n=2&topic=%00%0a%ff",
        "/decisions?producer_id=99999999999999999999999",
        "/../../etc/passwd",
        "/" + "a" * 4000,
        "/producers/x/" + "9" * 5000,
        "/producers/x/-" + "9" * 5000,
        "/producers/x/0?limit=" + "9" * 5000,
        "/producers/x/0?producer_id=-" + "9" * 5000,
        "/decisions?n=" + "9" * 5000,
    ],
)
def test_bad_admin_requests_are_answered_in_json(target: Echoless, path):
    """A status below 500, and a document."""
    status, document = admin(target, path)
    assert status < 500
    assert isinstance(document, dict)


def test_garbage_on_the_admin_port_is_answered_or_ended(target: Echoless):
    """HTTP's own parser sees to it."""
    admin(target, "/health")  # its imports are no leak
    for data in (b"\0" * 100, b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"/" * 20_000 + b"\r\n\r\n"):
        talk(target.admin_address, data)


@pytest.mark.slow
def test_no_more_than_connections_max(tmp_path: Path):
    """Late clients are turned away; when others leave, there is room again."""
    broker = Echoless(tmp_path, {"connections_max": "3"})
    broker.start()
    held = [connect(broker.kafka_address) for _ in range(3)]
    for connection in held:
        connection.sendall(API_VERSIONS)
        assert connection.recv(4)
    assert talk(broker.kafka_address, API_VERSIONS) == b""
    until(lambda: "3 are open" in broker.process.log(), "the refusal is logged")
    for connection in held:
        connection.close()
    until(lambda: is_answering(broker.kafka_address), "there is room again")
    assert broker.terminate() == 0
    assert_quiet_log(broker)


def connect_from(host: str, address: str) -> socket.socket:
    """A connection whose end here has the address `host`."""
    target, _, port = address.rpartition(":")
    return socket.create_connection((target, int(port)), timeout=20, source_address=(host, 0))


def talk_and_stay(held: list[socket.socket], address: str) -> bytes:
    """The first bytes of an answer to a connection that stays open in `held`; nothing if refused."""
    connection = connect(address)
    try:
        connection.sendall(API_VERSIONS)
        answer = connection.recv(4)
    except ConnectionError:
        answer = b""
    if answer:
        held.append(connection)
    else:
        connection.close()
    return answer


@pytest.mark.slow
def test_an_address_that_fills_the_broker_gives_way_to_another(tmp_path: Path):
    """Idle connections of the address with most are closed for a newcomer of another one."""
    broker = Echoless(tmp_path, {"connections_max": "6"})
    broker.start()
    hostile = [connect_from("127.0.0.2", broker.kafka_address) for _ in range(6)]
    for connection in hostile:
        connection.sendall(API_VERSIONS)
        assert connection.recv(4)
    good: list[socket.socket] = []
    until(lambda: len(talk_and_stay(good, broker.kafka_address)) > 0, "another one is let in")
    with connect_from("127.0.0.2", broker.kafka_address) as more:
        assert more.recv(1) == b""
    for connection in (*hostile, *good):
        connection.close()
    assert broker.terminate() == 0
    assert "another address needs one" in broker.process.log()
    assert_quiet_log(broker)


@pytest.mark.slow
def test_no_more_than_connections_max_per_ip(tmp_path: Path):
    """The bound holds over both ports; other addresses have their own."""
    broker = Echoless(tmp_path, {"connections_max_per_ip": "2"})
    broker.start()
    held = [
        connect_from("127.0.0.2", address)
        for address in (broker.kafka_address, broker.native_address)
    ]
    held[0].sendall(API_VERSIONS)
    assert held[0].recv(4)
    until(lambda: is_answering(broker.kafka_address), "another address is not concerned")
    with connect_from("127.0.0.2", broker.kafka_address) as third:
        assert third.recv(1) == b""
    for connection in held:
        connection.close()
    assert broker.terminate() == 0
    assert "connections_max_per_ip" in broker.process.log()
    assert_quiet_log(broker)


@pytest.mark.slow
def test_an_address_may_have_a_bound_of_its_own(tmp_path: Path):
    """`connections_max_per_ip_overrides`: more than others have, or none at all."""
    settings = {
        "connections_max_per_ip": "1",
        "connections_max_per_ip_overrides": "127.0.0.2:0, 127.0.0.3:2",
    }
    broker = Echoless(tmp_path, settings)
    broker.start()
    with connect_from("127.0.0.2", broker.kafka_address) as refused:
        assert refused.recv(1) == b""
    held = [connect_from("127.0.0.3", broker.kafka_address) for _ in range(2)]
    for connection in held:
        connection.sendall(API_VERSIONS)
        assert connection.recv(4)
        connection.close()
    assert broker.terminate() == 0
    assert_quiet_log(broker)


@pytest.mark.slow
def test_half_of_the_descriptors_stay_for_files():
    """A flood of connections cannot keep a log from opening its next segment."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert most_connections(5) == 5
        assert most_connections(2**31 - 1) == resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
def test_silent_connections_are_closed(tmp_path: Path):
    """After `connections_max_idle_ms`, looked at every few seconds."""
    broker = Echoless(tmp_path, {"connections_max_idle_ms": "1000"})
    broker.start()
    with connect(broker.kafka_address) as connection:
        assert connection.recv(1) == b""
    broker.kill()  # and with it the end of the log, which is copied by a thread of its own
    assert "silent for more than 1000 ms" in broker.process.log()
