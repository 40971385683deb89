"""An asyncio connection to one Kafka broker: many requests in flight, answered in order.

A broker works on the requests of one connection one after the other, so answers are matched by
position and the correlation id is only a check. An answer that does not come in time ends the
connection: a retried batch must not be overtaken by it. Does not retry and knows no cluster.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.log_in import RENEWED_AT, LoggingIn, awaited_exchange_of
from echoless.client.messages import (
    API_VERSIONS,
    LENGTH,
    ServedVersions,
    UnservedApiError,
    answer_size,
    decode_answer,
    decode_produced,
    encode_produce_of,
    encode_request,
    finalized_levels,
    newest_version,
    served_versions,
)
from echoless.client.produce_queue import ProduceQueue
from echoless.client.produce_request import NO_TRANSACTION, PartitionBatch, ProduceTerms
from echoless.client.receivers import Receiver, RowReceiver, WholeAnswer
from echoless.client.security import NO_SECURITY, Login, Security, TokenLogin
from echoless.client.software import NAMED_FROM, software_fields
from echoless.client.streams import open_streams
from echoless.client.tls import handshake_failure
from echoless.protocol.errors import DecodeError
from echoless.protocol.sasl.client_exchange import ClientExchange

_PRODUCE: Final = "produce"
_FEATURES_FROM: Final = 4
"""The version of ApiVersions in which brokers announce their features."""
_PRODUCES_PENDING_MAX: Final = 5
"""Produce requests in flight above which small batches wait for each other. Under load they leave
in fewer requests, which cost both sides less; otherwise they leave at once.
"""
_WAITING_BYTES_MAX: Final = 16 * 1024
"""Limit on the batches that wait in this way."""
_RENEWAL_SPREAD: Final = 0.1
"""The part of a session over which its renewals are spread: not all connections at once."""
_LOST: Final = "the connection was lost"


class _Pending(NamedTuple):
    """A request in flight."""

    api: str
    version: int
    correlation_id: int
    receiver: Receiver
    deadline: float
    """In the loop's time."""


class _Held(NamedTuple):
    """A request that is to be written."""

    api: str
    version: int
    fields: Mapping[str, Any]
    answer: WholeAnswer


class PipelinedConnection:
    """An open connection with negotiated API versions."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        address: str,
        timeout_s: float,
        login: Login | TokenLogin | None = None,
    ) -> None:
        self.address = address
        self.is_closed = False
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s
        self.finalized: Mapping[str, int] = {}
        """The levels of the cluster's features, as of the connection's beginning."""
        self._served: ServedVersions = {}
        self._versions: dict[str, int] = {}
        self._correlation_id = 0
        self._pending: deque[_Pending] = deque()
        self._queue = ProduceQueue()
        self._will_look = False
        """Whether the queue will be checked in the loop's next turn."""
        self._produces_pending = 0
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle | None = None
        self._login = login
        self._is_logging_in = False
        """Whether requests are held: the broker takes no other while it looks at a log-in."""
        self._held: deque[_Held] = deque()
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._reading = self._loop.create_task(self._read_answers())

    @classmethod
    async def open(
        cls, host: str, port: int, timeout_s: float, security: Security = NO_SECURITY
    ) -> Self:
        """Connects, asks for the API versions and logs in.

        Raises `ConnectionFailedError`; `AuthenticationError` if another attempt would fail, too.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        reader, writer = await open_streams(host, port, address, timeout_s, security)
        connection = cls(reader, writer, address, timeout_s, security.login)
        try:
            await connection._negotiate()
            if security.login is not None:
                exchange = await awaited_exchange_of(security.login)
                await connection._log_in(security.login, exchange)
        except BaseException:
            await connection.close()
            raise
        return connection

    def send(
        self, api: str, fields: Mapping[str, Any], version_max: int | None = None
    ) -> asyncio.Future[Any]:
        """Sends one request; the future has kio's entity, or `ConnectionFailedError`.

        `version_max` limits its version. Raises `ConnectionFailedError` if nothing was sent: the connection is closed
        or the broker does not serve the API.
        """
        version = self._version(api)
        if version_max is not None:
            version = min(version, version_max)
        if self._is_logging_in:
            self._check_open()
            held = _Held(api, version, fields, WholeAnswer(self._loop.create_future()))
            self._held.append(held)
            return held.answer.future
        return self._send(api, version, fields)

    def produce(
        self,
        batch: PartitionBatch,
        receiver: RowReceiver,
        *,
        timeout_ms: int,
        bytes_max: int = 0,
        terms: ProduceTerms = NO_TRANSACTION,
    ) -> None:
        """Sends one batch with acks=all; the receiver takes the partition's row of the answer.

        `bytes_max`: the batch may share a request of that size with batches of other partitions:
        those given in the same turn of the loop, and, while `_PRODUCES_PENDING_MAX` requests are in
        flight, those given before one is answered. 0: it goes alone, at once.

        Raises `ConnectionFailedError` if nothing was sent; the receiver is not called then.
        """
        self._version(_PRODUCE)
        self._check_open()
        self._queue.add(batch, receiver, timeout_ms=timeout_ms, bytes_max=bytes_max, terms=terms)
        if not self._will_look:
            self._will_look = True
            self._loop.call_soon(self._send_queued)

    def _send_queued(self) -> None:
        self._will_look = False
        while not self.is_closed and not self._is_logging_in:
            is_busy = self._produces_pending >= _PRODUCES_PENDING_MAX
            group = self._queue.pop(may_wait=is_busy, waiting_bytes_max=_WAITING_BYTES_MAX)
            if group is None:
                return
            terms = group.terms
            version = min(self._version(_PRODUCE), terms.version_max)
            parts = encode_produce_of(
                version,
                self._correlation_id + 1,
                group.batches,
                timeout_ms=group.timeout_ms,
                transactional_id=terms.transactional_id,
            )
            self._write(_PRODUCE, version, parts, group)
            self._produces_pending += 1

    def serves(self, api: str) -> bool:
        try:
            self._version(api)
        except ConnectionFailedError:
            return False
        return True

    async def close(self) -> None:
        """Closes at once; pending requests fail."""
        self._fail(self._failure("closed"))
        tasks = [task for task in (self._reading, self._renewing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _negotiate(self) -> None:
        # Version 0 is served by every broker since 0.10; features come with 4 only, in Echoless.
        for version in (_FEATURES_FROM, NAMED_FROM, 0):
            fields = software_fields() if version >= NAMED_FROM else {}
            answer = await self._send(API_VERSIONS, version, fields)
            served = served_versions(answer)
            if served is not None:
                self._served, self.finalized = served, finalized_levels(answer)
                return

    async def _log_in(self, login: Login | TokenLogin, exchange: ClientExchange) -> None:
        """Logs in, and does so again before the session ends."""
        began = self._loop.time()
        logging_in = LoggingIn(login, exchange, self.address)
        while logging_in.request is not None:
            api, fields = logging_in.request
            answer = await self._send(api, self._version(api), fields)
            await asyncio.to_thread(logging_in.take, answer)  # it computes for milliseconds
        if logging_in.session_s:
            share = random.uniform(RENEWED_AT, RENEWED_AT + _RENEWAL_SPREAD)  # noqa: S311  jitter
            self._renewal = self._loop.call_at(began + logging_in.session_s * share, self._renew)

    def _renew(self) -> None:
        self._renewing = self._loop.create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        """Holds what is sent meanwhile. What is in flight is answered first, as answers keep their order."""
        login = self._login
        assert login is not None
        try:
            exchange = await awaited_exchange_of(
                login
            )  # nothing is held while a token is requested
            self._is_logging_in = True
            await self._log_in(login, exchange)
            self._is_logging_in = False
            while self._held:
                self._send_held(self._held[0])
                self._held.popleft()
        except ConnectionFailedError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  a bug: it must not hold requests for ever
            self._fail(self._failure(f"the log-in failed: {error!r}"))
        finally:
            self._is_logging_in = False
        self._send_queued()

    def _send_held(self, held: _Held) -> None:
        frame = encode_request(held.api, held.version, self._correlation_id + 1, held.fields)
        self._write(held.api, held.version, (frame,), held.answer)

    def _version(self, api: str) -> int:
        version = self._versions.get(api)
        if version is None:
            try:
                version = self._versions[api] = newest_version(api, self._served)
            except UnservedApiError as error:
                raise ConnectionFailedError(f"the broker at {self.address} {error}") from error
        return version

    def _check_open(self) -> None:
        if self.is_closed or self._writer.is_closing():
            raise ConnectionFailedError(f"the connection to {self.address} is closed")

    def _send(self, api: str, version: int, fields: Mapping[str, Any]) -> asyncio.Future[Any]:
        self._check_open()
        held = _Held(api, version, fields, WholeAnswer(self._loop.create_future()))
        self._send_held(held)
        return held.answer.future

    def _write(self, api: str, version: int, parts: Sequence[bytes], receiver: Receiver) -> None:
        """Sends the parts of a frame that carries the next correlation id."""
        self._correlation_id += 1
        deadline = self._loop.time() + self._timeout_s
        self._pending.append(_Pending(api, version, self._correlation_id, receiver, deadline))
        self._writer.writelines(parts)
        if self._watch is None:
            self._watch = self._loop.call_at(deadline, self._check_deadline)

    async def _read_answers(self) -> None:
        try:
            while True:
                size = answer_size(await self._reader.readexactly(LENGTH.size))
                self._take(await self._reader.readexactly(size))
        except ssl.SSLError as error:
            # With TLS 1.3 a client learns only here that its certificate was refused.
            self._fail(handshake_failure(error, self.address) or self._failure(_LOST))
        except (OSError, EOFError):
            if self._renewing is not None and not self._pending:
                await (
                    self._renewing
                )  # the last answer to a log-in says why the connection has ended
            self._fail(self._failure(_LOST))
        except DecodeError as error:
            self._fail(self._failure(str(error)))

    def _failure(self, reason: str) -> ConnectionFailedError:
        return ConnectionFailedError(f"{self.address}: {reason}")

    def _take(self, frame: bytes) -> None:
        if not self._pending:
            raise DecodeError("an answer arrived without a request")
        # It stays pending until it has been read: if that fails, it fails with the others.
        pending = self._pending[0]
        is_produce = pending.api == _PRODUCE
        if is_produce:
            answer = decode_produced(pending.version, pending.correlation_id, frame)
        else:
            answer = decode_answer(pending.api, pending.version, pending.correlation_id, frame)
        pending.receiver.take(answer)
        self._pending.popleft()
        if is_produce:
            self._produces_pending -= 1
            self._send_queued()

    def _check_deadline(self) -> None:
        self._watch = None
        if not self._pending:
            return
        oldest = self._pending[0]
        if oldest.deadline <= self._loop.time():
            self._fail(self._failure(f"{oldest.api} was not answered within {self._timeout_s:g} s"))
        else:
            self._watch = self._loop.call_at(oldest.deadline, self._check_deadline)

    def _fail(self, error: ConnectionFailedError) -> None:
        self.is_closed = True
        self._writer.transport.abort()
        for timer in (self._watch, self._renewal):
            if timer is not None:
                timer.cancel()
        self._watch = self._renewal = None
        receivers: list[Receiver] = [pending.receiver for pending in self._pending]
        receivers += [held.answer for held in self._held]
        self._pending.clear()
        self._held.clear()
        for receiver in receivers:
            receiver.fail(error)
        self._queue.fail(error)
