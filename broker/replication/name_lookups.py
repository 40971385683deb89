"""Addresses of hosts, looked up in threads that do not keep the process alive.

The event loop's own lookup runs in a pool of threads that the process joins at its end, and the
resolver may take ten seconds or more if the name server is gone: a stopping broker would wait for
it. These threads are daemons.

At most one lookup per host is under way: asking a resolver again brings no faster answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from echoless.broker.threads import OutOfThreadsError, start_thread


class NameLookups:
    """The lookups of one event loop."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[list[str] | Exception]] = {}
        """Lookups by host."""

    async def addresses(self, host: str) -> list[str]:
        """The host's addresses, in the resolver's order. Raises `OSError`, `UnicodeError`."""
        with contextlib.suppress(OSError):
            return _resolved(host, socket.AI_NUMERICHOST)
        lookup = self._under_way.get(host)
        if lookup is None:
            lookup = self._under_way[host] = asyncio.get_running_loop().create_future()
            self._start(host, lookup)
        found = await asyncio.shield(lookup)  # others may wait for it, too
        if isinstance(found, Exception):
            raise found
        return found

    def _start(self, host: str, lookup: asyncio.Future[list[str] | Exception]) -> None:
        try:
            start_thread("name lookup", self._look_up, asyncio.get_running_loop(), host, lookup)
        except OutOfThreadsError:
            del self._under_way[host]
            raise

    def _look_up(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        lookup: asyncio.Future[list[str] | Exception],
    ) -> None:
        found: list[str] | Exception
        try:
            found = _resolved(host)
        except (OSError, UnicodeError) as error:
            found = error
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(self._finish, host, lookup, found)

    def _finish(
        self,
        host: str,
        lookup: asyncio.Future[list[str] | Exception],
        found: list[str] | Exception,
    ) -> None:
        del self._under_way[host]
        lookup.set_result(found)


def _resolved(host: str, flags: int = 0) -> list[str]:
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    return [str(address[0]) for _, _, _, _, address in infos]
