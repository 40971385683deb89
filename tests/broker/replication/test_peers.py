"""Connections to other brokers, against a port that says whatever the test wants."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.broker.config.loading import Address
from echoless.broker.replication.peers import PeerError, TcpPeers
from echoless.protocol.framing import frame_length
from tests.support.scripted_peer import SUCCESS, ScriptedPeer, answer, framed, scripted_peer

LONG_S = 30.0
"""Longer than any test takes: what is not meant to time out never does."""


@pytest.fixture
async def peers() -> AsyncIterator[TcpPeers]:
    """Connections of this test, which end with it."""
    peers = TcpPeers()
    yield peers
    await peers.close()


async def call(peers: TcpPeers, peer: ScriptedPeer, **fields: Any) -> dict[str, Any]:
    message = {"type": "question", **fields}
    return await peers.call(1, peer.address, message, timeout_s=LONG_S)


async def received(peer: ScriptedPeer, count: int) -> None:
    """Returns when this many messages have come."""
    async with asyncio.timeout(LONG_S):
        while len(peer.received) < count:  # noqa: ASYNC110 - the peer is a plain server
            await asyncio.sleep(0)


def after_hello(data: bytes | None) -> Any:
    """Answers that are right up to the hello, and `data` for everything else."""
    return lambda message: answer(message) if message["type"] == "hello" else data


async def test_a_call_brings_its_answer_after_a_hello(peers: TcpPeers) -> None:
    """The hello comes first and once; later calls use the same connection."""
    async with scripted_peer() as peer:
        first = await call(peers, peer, value=1)
        await call(peers, peer, value=2)
        assert (first["type"], first["error"]) == ("question", SUCCESS)
        assert [one["type"] for one in peer.received] == ["hello", "question", "question"]
        assert [one.get("value") for one in peer.received] == [None, 1, 2]
        assert len(peer.writers) == 1


async def test_small_messages_leave_at_once(peers: TcpPeers) -> None:
    """The connection does not wait for more to send (TCP_NODELAY)."""
    async with scripted_peer() as peer:
        await call(peers, peer)
        (connection,) = peers._connections.values()
        assert connection._transport is not None
        open_socket = connection._transport.get_extra_info("socket")
        assert open_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_many_calls_are_under_way_at_once(peers: TcpPeers) -> None:
    """Each gets its own answer, though nothing is answered before all have been asked."""
    count, held = 100, []

    def answers(message: dict[str, Any]) -> bytes | None:
        if message["type"] == "hello":
            return answer(message)
        held.append(answer(message, value=message["value"] * 2))
        return b"".join(held) if len(held) == count else None

    async with scripted_peer(answers) as peer:
        found = await asyncio.gather(*(call(peers, peer, value=value) for value in range(count)))
        assert [one["value"] for one in found] == [value * 2 for value in range(count)]
        assert len(peer.writers) == 1


async def test_a_long_poll_holds_up_no_other_type_of_message(peers: TcpPeers) -> None:
    """Answers come in order, so each type of message has a separate connection."""

    def answers(message: dict[str, Any]) -> bytes | None:
        return None if message["type"] == "poll" else answer(message)

    async with scripted_peer(answers) as peer:
        poll = asyncio.create_task(call(peers, peer, type="poll"))
        await received(peer, 2)
        await call(peers, peer)
        assert not poll.done()
        poll.cancel()


async def test_a_long_document_holds_up_no_other(peers: TcpPeers) -> None:
    """A late answer ends its connection: the events of a console would end with a slow list of topics."""

    def answers(message: dict[str, Any]) -> bytes | None:
        return None if message.get("name") == "topics" else answer(message)

    async with scripted_peer(answers) as peer:
        topics = asyncio.create_task(call(peers, peer, type="admin_read", name="topics"))
        await received(peer, 2)
        async with asyncio.timeout(LONG_S):
            await call(peers, peer, type="admin_read", name="events")
        assert not topics.done()
        topics.cancel()


async def test_a_large_answer_arrives_whole(peers: TcpPeers) -> None:
    """Ten megabytes of batches, as a follower that has to catch up gets them."""
    batches = bytes(range(256)) * 40_000
    async with scripted_peer(lambda message: answer(message, batches=batches)) as peer:
        assert (await call(peers, peer))["batches"] == batches


@settings(max_examples=20)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=10))
async def test_answers_do_not_depend_on_how_bytes_arrive(sizes: list[int]) -> None:
    """Cut anywhere, an answer is the same."""

    async def dribble(writer: asyncio.StreamWriter, data: bytes) -> None:
        position, turn = 0, 0
        while position < len(data):
            size = sizes[turn % len(sizes)]
            writer.write(data[position : position + size])
            await asyncio.sleep(0)
            position, turn = position + size, turn + 1

    tasks = []

    def answers(message: dict[str, Any]) -> bytes | None:
        tasks.append(asyncio.create_task(dribble(peer.writers[0], answer(message, value=5))))
        return None

    peers = TcpPeers()
    async with scripted_peer(answers) as peer:
        assert (await call(peers, peer))["value"] == 5
        await asyncio.gather(*tasks)
    await peers.close()


async def test_nobody_listens(peers: TcpPeers) -> None:
    """A refused connection is a `PeerError` that names the broker, where, and why."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = Address(*bound.getsockname())
        with pytest.raises(PeerError, match=f"broker 4 at {address}: Connection refused"):
            await peers.call(4, address, {"type": "question"}, timeout_s=LONG_S)


@pytest.mark.parametrize("host", ["a..b", "x" * 100 + ".invalid", "\0"])
async def test_an_impossible_address_is_an_error_like_others(peers: TcpPeers, host: str) -> None:
    """A registered address may be any text."""
    with pytest.raises(PeerError):
        await peers.call(1, Address(host, 1), {"type": "question"}, timeout_s=LONG_S)


async def test_another_broker_at_the_address_is_found_out(peers: TcpPeers) -> None:
    """An address may have passed to another broker, which must not be taken for the leader."""
    async with scripted_peer() as peer:
        with pytest.raises(PeerError, match="it comes from broker 1"):
            await peers.call(2, peer.address, {"type": "question"}, timeout_s=LONG_S)
        assert [one["type"] for one in peer.received] == ["hello"]


@pytest.mark.parametrize(
    "data",
    [
        framed({"type": "hello", "correlation_id": 1}),
        framed({"type": "hello", "correlation_id": 1, "error": SUCCESS}),
        framed({"type": "hello", "correlation_id": 1, "error": {"code": 35, "message": "no"}}),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_a_hello_that_is_none_ends_the_connection(peers: TcpPeers, data: bytes) -> None:
    """Refused, incomplete, or of another protocol."""
    async with scripted_peer(lambda _: data) as peer:
        with pytest.raises(PeerError, match="makes no sense"):
            await call(peers, peer)


@pytest.mark.parametrize(
    "data",
    [
        frame_length(3) + b"\x93\x01\x02\x03"[:3],
        frame_length(-1),
        frame_length(2**31 - 1),
        framed({"type": "question", "correlation_id": 99}),
        framed({"type": "other", "correlation_id": 2}),
        framed({"correlation_id": 2}),
        framed({"type": "question", "correlation_id": 2})[:-1] + b"\xc1",
    ],
)
async def test_a_senseless_answer_fails_all_calls(peers: TcpPeers, data: bytes) -> None:
    """No map, no frame, the answer to something else: what follows could not be trusted either."""
    held: list[dict[str, Any]] = []

    def answers(message: dict[str, Any]) -> bytes | None:
        if message["type"] == "hello":
            return answer(message)
        held.append(message)
        return data if len(held) == 2 else None

    async with scripted_peer(answers) as peer:
        calls = [call(peers, peer), call(peers, peer)]
        failed = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in failed] == [PeerError, PeerError]
        assert "makes no sense" in str(failed[0])


async def test_an_answer_that_nobody_asked_for_ends_the_connection(peers: TcpPeers) -> None:
    """A peer that counts differently is not trusted again; the next call reconnects."""

    def answers(message: dict[str, Any]) -> bytes | None:
        return answer(message) * (1 if message["type"] == "hello" else 2)

    async with scripted_peer(answers) as peer:
        await call(peers, peer)
        while not all(one.is_closed for one in peers._connections.values()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await call(peers, peer)
        assert len(peer.writers) == 2


async def test_a_message_that_an_older_peer_does_not_know_gets_its_error(peers: TcpPeers) -> None:
    """Answers of type `error` belong to the caller; the connection stays open."""
    error = {"code": 35, "name": "UNSUPPORTED_VERSION", "message": "?", "retriable": False}

    def answers(message: dict[str, Any]) -> bytes | None:
        changed = {} if message["type"] == "hello" else {"type": "error", "error": error}
        return answer(message, **changed)

    async with scripted_peer(answers) as peer:
        assert (await call(peers, peer))["error"] == error
        await call(peers, peer)
        assert len(peer.writers) == 1


async def test_a_connection_cut_in_an_answer_fails_the_calls_and_is_replaced(
    peers: TcpPeers,
) -> None:
    """Half an answer is none; the next call opens a new connection."""

    def answers(message: dict[str, Any]) -> bytes | None:
        data = answer(message, batches=b"b" * 100_000)
        if message["type"] == "hello" or len(peer.writers) > 1:
            return data
        return data[:50_000] if message["value"] == 0 else None

    async with scripted_peer(answers) as peer:
        calls = [asyncio.create_task(call(peers, peer, value=value)) for value in range(3)]
        await received(peer, 4)
        peer.writers[0].close()
        for one in calls:
            with pytest.raises(PeerError, match="the connection ended"):
                await one
        assert len((await call(peers, peer))["batches"]) == 100_000


async def test_a_late_answer_fails_all_calls_and_never_reaches_another(peers: TcpPeers) -> None:
    """After a timeout the connection is gone, and with it the answer that comes too late."""
    async with scripted_peer(after_hello(None)) as peer:
        patient = asyncio.create_task(call(peers, peer))
        await received(peer, 2)
        with pytest.raises(PeerError, match=r"no answer to question within 0\.01 s"):
            await peers.call(1, peer.address, {"type": "question"}, timeout_s=0.01)
        with pytest.raises(PeerError, match="no answer to question"):
            await patient


async def test_a_peer_that_accepts_and_says_nothing_is_late_too(peers: TcpPeers) -> None:
    """The time for an answer includes connecting and the hello."""
    async with scripted_peer(lambda _: None) as peer:
        with pytest.raises(PeerError, match="no answer"):
            await peers.call(1, peer.address, {"type": "question"}, timeout_s=0.01)


async def test_whoever_gives_up_disturbs_nobody(peers: TcpPeers) -> None:
    """A cancelled call's answer is dropped when it comes; the calls after it get theirs."""
    held = bytearray()

    def answers(message: dict[str, Any]) -> bytes | None:
        if message["type"] == "hello":
            return answer(message)
        held.extend(answer(message, value=message["value"]))
        return bytes(held) if message["value"] == 2 else None

    async with scripted_peer(answers) as peer:
        given_up = asyncio.create_task(call(peers, peer, value=1))
        await received(peer, 2)
        given_up.cancel()
        assert (await call(peers, peer, value=2))["value"] == 2
        assert given_up.cancelled()


async def test_whoever_gives_up_while_connecting_disturbs_nobody(peers: TcpPeers) -> None:
    """The calls share one attempt to connect, which continues for those still waiting."""
    async with scripted_peer() as peer:
        first, second = (asyncio.create_task(call(peers, peer)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second)["error"] == SUCCESS
        assert len(peer.writers) == 1


async def test_disconnect_ends_one_broker_s_connections(peers: TcpPeers) -> None:
    """Calls in flight fail at once, those to other brokers continue."""

    def other_answers(message: dict[str, Any]) -> bytes | None:
        return answer(message, broker_id=2)

    async with scripted_peer(after_hello(None)) as peer, scripted_peer(other_answers) as other:
        waiting = asyncio.create_task(call(peers, peer))
        await received(peer, 2)
        await peers.call(2, other.address, {"type": "question"}, timeout_s=LONG_S)
        peers.disconnect(1)
        with pytest.raises(PeerError, match="disconnected"):
            await waiting
        await peers.call(2, other.address, {"type": "question"}, timeout_s=LONG_S)
        assert len(other.writers) == 1


async def test_a_broker_that_has_moved_is_asked_where_it_is(peers: TcpPeers) -> None:
    """A new address means a new connection, and the end of the one before."""
    async with scripted_peer() as before, scripted_peer() as after:
        await call(peers, before)
        await call(peers, after)
        assert [one["type"] for one in after.received] == ["hello", "question"]
        (connection,) = peers._connections.values()
        assert connection.address == after.address


async def test_nothing_is_asked_after_the_end() -> None:
    """Closing fails what is in flight, and every call from then on."""
    peers = TcpPeers()
    async with scripted_peer(after_hello(None)) as peer:
        waiting = asyncio.create_task(call(peers, peer))
        await received(peer, 2)
        await peers.close()
        for one in (waiting, call(peers, peer)):
            with pytest.raises(PeerError, match="stopping"):
                await one


async def test_closing_while_connecting_leaves_nothing_running() -> None:
    """The attempt is cancelled, and its waiters get an error."""
    peers = TcpPeers()
    async with scripted_peer(lambda _: None) as peer:
        waiting = asyncio.create_task(call(peers, peer))
        await asyncio.sleep(0)
        await peers.close()
        with pytest.raises(PeerError, match="stopping"):
            await waiting
        assert len(asyncio.all_tasks()) <= 2  # this one, and the peer's for its connection
