"""Connections to brokers that a Python process keeps between the tasks that it runs, and the thread that serves them.

Spark runs one task after the other in a Python worker. A task takes a *session* out of those that are kept, or begins one,
and puts it back once everything that it sent was answered; after an error the session is closed. So

* a session is never used by two tasks at once;
* a session belongs to the servers, time limits and credentials that it was begun with;
* no request or record of an earlier task can leave later. Invariant: nothing is outstanding in a session that is kept.

Only connections outlive a task. What a task knows of a cluster (topics, leaders, the cluster's id) it has asked for itself. The thread
notices when a broker closes a connection, so that the next task opens another. What nobody has used for `KEPT_S` is closed. A
forked process has no such thread, and begins sessions of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

from echoless.client.cluster import Cluster, parse_addresses
from echoless.client.security import Security
from echoless.client.settings import Settings
from echoless.pipeline.exactly_once.shared_answers import SharedAnswers

KEPT_S: Final = 60.0
"""Time after which an unused session is closed: brokers and what is between may drop connections after minutes."""
KEPT_MAX: Final = 4
_T = TypeVar("_T")


class SessionKey(NamedTuple):
    """The cluster, and the way to it."""

    bootstrap_servers: str
    request_timeout_s: float
    security: Security


class BrokerSession:
    """Connections to one cluster. For one thread at a time."""

    def __init__(self, key: SessionKey, loop: asyncio.AbstractEventLoop) -> None:
        self.key = key
        self.loop = loop
        """The loop that the connections belong to; it runs in a thread of its own."""
        self.answers = SharedAnswers()
        """Leaders' answers of the batch that was last written."""
        self.unused_since = 0.0
        self._cluster = Cluster(
            parse_addresses(key.bootstrap_servers),
            timeout_s=key.request_timeout_s,
            security=key.security,
        )

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine in the loop, and waits for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def cluster(self, *, auto_create_topics: bool) -> Cluster:
        """Returns a cluster of which nothing is known yet, over the session's connections. It need not be closed."""
        return self._cluster.sibling(auto_create_topics=auto_create_topics)

    async def disconnect(self) -> None:
        """Closes the connections. Runs in the loop."""
        await self._cluster.close()

    def close(self) -> None:
        """Closes the connections."""
        self.call(self.disconnect())


class _Process:
    """The sessions of one process, and the thread that serves them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kept: list[BrokerSession] = []
        """The one that was used last is at the end."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.has_timer = False
        self._closing: asyncio.Task[None] | None = None

    def take(self, key: SessionKey) -> BrokerSession:
        """Takes out a session, or begins one."""
        with self.lock:
            for index in range(len(self.kept) - 1, -1, -1):
                if self.kept[index].key == key and not is_old(self.kept[index]):
                    return self.kept.pop(index)
            return BrokerSession(key, self._running_loop())

    def keep(self, session: BrokerSession) -> None:
        """Puts a session back, in which nothing is outstanding."""
        session.unused_since = time.monotonic()
        with self.lock:
            self.kept.append(session)
            surplus = self.kept[:-KEPT_MAX]
            del self.kept[:-KEPT_MAX]
            if not self.has_timer:
                self.has_timer = True
                session.loop.call_soon_threadsafe(session.loop.call_later, KEPT_S, self._expire)
        for one in surplus:
            one.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            threading.Thread(
                target=self.loop.run_forever, name="echoless-sink", daemon=True
            ).start()
        return self.loop

    def _expire(self) -> None:
        """Closes what is unused for long. Runs in the loop's thread."""
        assert self.loop is not None
        with self.lock:
            old = [one for one in self.kept if is_old(one)]
            self.kept = [one for one in self.kept if not is_old(one)]
            self.has_timer = bool(self.kept)
            if self.has_timer:
                self.loop.call_later(KEPT_S, self._expire)
        self._closing = self.loop.create_task(_disconnect(old))


async def _disconnect(sessions: list[BrokerSession]) -> None:
    for one in sessions:
        await one.disconnect()


def is_old(session: BrokerSession) -> bool:
    """Whether nobody has used a session for long."""
    return time.monotonic() - session.unused_since > KEPT_S


_process = _Process()
_parents: list[_Process] = []
"""Sessions of the processes that this one was forked from. They are not touched, not even by their destructors: the parent's
loop would no longer be woken."""


def _begin_anew() -> None:
    global _process  # noqa: PLW0603  a process has its own
    _parents.append(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def session_of(bootstrap_servers: str, settings: Settings) -> Iterator[BrokerSession]:
    """Gives a session to one task. What the block has sent has to be answered at its end, unless it raises."""
    process = _process
    key = SessionKey(bootstrap_servers, settings.request_timeout_s, settings.security)
    session = process.take(key)
    try:
        yield session
    except BaseException:
        session.close()
        raise
    process.keep(session)


def close_kept() -> None:
    """Closes all sessions that are kept."""
    with _process.lock:
        kept, _process.kept = _process.kept, []
    for one in kept:
        one.close()
