"""Names that are looked up without holding up anything else, the end of the process included."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from echoless.broker.config.values import Address
from echoless.broker.replication.name_lookups import NameLookups
from echoless.broker.replication.peers import PeerError, TcpPeers

PATIENCE_S = 120.0
_A_PROCESS_THAT_LOOKS_UP = """
import asyncio, socket, threading
from echoless.broker.config.values import Address
from echoless.broker.replication.peers import TcpPeers

stuck = threading.Event()

def getaddrinfo(host, *_, flags=0, **__):
    if flags & socket.AI_NUMERICHOST:
        raise socket.gaierror
    stuck.set()
    threading.Event().wait()

async def main():
    peers = TcpPeers()
    call = asyncio.create_task(
        peers.call(1, Address("gone", 1), {"type": "x"}, timeout_s=600)
    )
    while not stuck.is_set():
        await asyncio.sleep(0)
    await peers.close()
    await asyncio.gather(call, return_exceptions=True)

socket.getaddrinfo = getaddrinfo
asyncio.run(main())
print("ended")
"""


def refuse_threads(*_: object) -> None:
    """Replaces the interpreter's own, under a limit of processes."""
    raise RuntimeError("can't start new thread")


class Resolver:
    """Replaces `socket.getaddrinfo`; answers names on request."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self.addresses = ["127.0.0.1"]

    def __call__(self, host: str, *_: Any, flags: int = 0, **__: Any) -> list[Any]:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        self.asked.append(host)
        assert self.may_answer.wait(PATIENCE_S)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in self.addresses]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    return resolver


async def test_an_address_is_no_name() -> None:
    """It needs no thread."""
    before = threading.active_count()
    assert await NameLookups().addresses("127.0.0.1") == ["127.0.0.1"]
    assert await NameLookups().addresses("::1") == ["::1"]
    assert threading.active_count() == before


async def test_a_host_is_looked_up_once_at_a_time(resolver: Resolver) -> None:
    """All who ask meanwhile share the answer, also where one of them has given up."""
    lookups = NameLookups()
    asking = [asyncio.create_task(lookups.addresses("a")) for _ in range(3)]
    other = asyncio.create_task(lookups.addresses("b"))
    await asyncio.sleep(0)
    asking[0].cancel()
    resolver.may_answer.set()
    assert await asyncio.gather(*asking[1:], other) == [["127.0.0.1"]] * 3
    assert sorted(resolver.asked) == ["a", "b"]
    await lookups.addresses("a")
    assert sorted(resolver.asked) == ["a", "a", "b"], "an old answer was given"


async def test_a_name_that_nobody_knows(resolver: Resolver) -> None:
    """The call fails with the resolver's reason."""
    resolver.addresses = []
    resolver.may_answer.set()
    peers = TcpPeers()
    with pytest.raises(PeerError, match="broker 1 at gone:9093: Name or service not known"):
        await peers.call(1, Address("gone", 9093), {"type": "x"}, timeout_s=PATIENCE_S)


async def test_every_address_of_a_host_is_tried(resolver: Resolver) -> None:
    """One that refuses is followed by the next."""
    reached = asyncio.Event()
    server = await asyncio.start_server(lambda *_: reached.set(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    resolver.addresses = ["127.0.0.2", "127.0.0.1"]
    resolver.may_answer.set()
    peers = TcpPeers()
    call = asyncio.create_task(
        peers.call(1, Address("two", port), {"type": "x"}, timeout_s=PATIENCE_S)
    )
    async with asyncio.timeout(PATIENCE_S):
        await reached.wait()
    await peers.close()
    await asyncio.gather(call, return_exceptions=True)
    server.close()


async def test_a_lookup_without_a_thread_fails_and_the_next_one_does_not(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No one waits for a thread that was never started."""
    resolver.may_answer.set()
    lookups = NameLookups()
    with monkeypatch.context() as patched:
        patched.setattr(threading, "_start_new_thread", refuse_threads)
        with pytest.raises(OSError, match="ulimit -u"):
            await lookups.addresses("a")
    async with asyncio.timeout(PATIENCE_S):
        assert await lookups.addresses("a") == ["127.0.0.1"]


def test_a_lookup_that_never_ends_keeps_no_process() -> None:
    """Neither closing the peers nor the interpreter's end waits for it."""
    command = [sys.executable, "-c", _A_PROCESS_THAT_LOOKS_UP]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr
