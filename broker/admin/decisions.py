"""`/decisions`: the latest decisions as one document, or all of them as they happen.

Following yields a stream of lines, one JSON object each. A reader that is too slow for its broker
loses events and is sent their number; nothing else in the broker ever waits for it. A stream ends once the
token by which it was asked for is no longer valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from itertools import groupby, islice
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.client_exceptions import ClientConnectionError

from echoless.broker.admin.answer import answer_rows
from echoless.broker.admin.callers import Caller, caller_of
from echoless.broker.admin.documents import (
    decision_document,
    event_document,
    fault_document,
    transaction_step_document,
)
from echoless.broker.admin.peer_reading import ask_peer
from echoless.broker.admin.query import read_choice, read_count, read_fact, read_selection
from echoless.broker.admin.refusal import RefusalError
from echoless.broker.admin.view import BrokerView
from echoless.broker.authentication.admin_tokens import LOOK_INTERVAL_S
from echoless.broker.decisions.events import Event, RequestSeen
from echoless.broker.decisions.stream import DecisionStream, Selection
from echoless.broker.essential_task import reported_task
from echoless.broker.faults.permission import refusal
from echoless.broker.network.request import ANONYMOUS
from echoless.broker.network.turns import ADMIN_PORT, for_client
from echoless.protocol.acl import AclOperation

logger: Final = logging.getLogger(__name__)

LIST_MAX: Final = 10_000
CONSOLE: Final = "console"
ALL: Final = "all"
BROKERS: Final = ("own", ALL)
_ASK_OTHERS_S: Final = 0.25
_ASK_AGAIN_S: Final = 2.0
_LOOK_FOR_BROKERS_S: Final = 2.0
READERS: Final = ("program", CONSOLE)
"""The values of `reader`; the first is the default."""
FOLLOWERS_MAX: Final = 16
"""Readers that may follow at once; each may have a full queue in memory."""
FOLLOWERS_PER_ADDRESS_MAX: Final = 8
"""The limit per address; and when all places are taken, the address with most of them gives way to others."""
CONSOLES_MAX: Final = 8
"""Consoles that may follow besides, so that open tabs never keep a command or a test from following; their addresses
give way in the same way."""
_COUNT_DEFAULT: Final = 100
_NAME_MAX: Final = 100
"""Characters of a stream's name."""
_encoder: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_LINES_AT_ONCE: Final = 100
_RECORD_BYTES_AT_ONCE: Final = 2048
"""Bytes of records in an event up to which it is encoded on the event loop."""
_GATHER_S: Final = 0.005
"""Events that follow each other within this time are sent together."""
_CONSOLE_GATHER_S: Final = 0.1
"""The same for consoles: a person sees no difference, and a browser draws less often."""


def _nothing(_topic: str) -> bool:
    return False


class DecisionPages:
    """The path and its readers, for one broker."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker
        self._streams: dict[DecisionStream, str] = {}
        """The open streams, and the address of each reader."""

    async def decisions(self, request: web.Request) -> web.StreamResponse:
        """Answers GET /decisions."""
        is_followed = read_fact(request.query, "follow")
        least = 0 if is_followed else 1
        count = read_count(request.query, "n", _COUNT_DEFAULT, least=least, most=LIST_MAX)
        caller = caller_of(request)
        selection = _read_selection(self._broker, request, caller)
        if is_followed and request.method != hdrs.METH_HEAD:  # an answer to HEAD must end
            is_console = read_choice(request.query, "reader", READERS) == CONSOLE
            read_choice(request.query, "brokers", BROKERS)  # refused before the answer begins
            name = request.query.get("name")
            self._check_free(name)
            stream = DecisionStream(selection, is_console=is_console, name=name)
            return await self._follow(request, count, stream)
        decisions = self._broker.decisions
        return await answer_rows(
            {},
            {
                "decisions": map(decision_document, decisions.latest(count, selection)),
                "faults": map(fault_document, decisions.latest_faults(count, selection)),
                "transactions": map(
                    transaction_step_document, decisions.latest_transactions(count, selection)
                ),
            },
        )

    async def fence(self, request: web.Request) -> web.Response:
        """Answers POST /decisions/fences/NAME: the stream of that name gets a line behind all that has happened."""
        name = request.match_info["name"]
        for stream in self._streams:
            if stream.name == name:
                return web.json_response({"fence": stream.set_fence()})
        raise RefusalError(HTTPStatus.NOT_FOUND, f"{name}: no reader follows under this name")

    def _check_free(self, name: str | None) -> None:
        """Raises `RefusalError` if a reader follows under this name, or it cannot be one."""
        if name is not None and not 0 < len(name) <= _NAME_MAX:
            raise RefusalError(HTTPStatus.BAD_REQUEST, f"name: takes 1 to {_NAME_MAX} characters")
        if name is not None and any(stream.name == name for stream in self._streams):
            raise RefusalError(HTTPStatus.CONFLICT, f"{name}: a reader follows under this name")

    async def close(self, _: web.Application) -> None:
        """Ends all streams, so that stopping the port need not wait for their readers."""
        for stream in self._streams:
            stream.close()

    async def _follow(
        self, request: web.Request, count: int, stream: DecisionStream
    ) -> web.StreamResponse:
        host = request.remote or "?"
        self._make_room(host, stream)
        # No await between looking back and following: no event is missed or sent twice.
        remembered = self._broker.decisions.latest_events(count, stream.selection)
        self._broker.decisions.follow(stream)
        self._streams[stream] = host
        caller = caller_of(request)
        watch = None
        if caller.token is not None:
            watch = reported_task(_end_with_token(caller, stream), "the watch over a token")
        try:
            return await self._send(request, self._documents(remembered), stream, count)
        finally:
            if watch is not None:
                watch.cancel()
            self._streams.pop(stream, None)
            self._broker.decisions.unfollow(stream)

    def _make_room(self, host: str, stream: DecisionStream) -> None:
        """Has the address that follows most give way to a reader of another one, once all places are taken.

        Raises `RefusalError` if no address has more of them than this one would have.
        """
        is_console = stream.is_console
        most, kind = (CONSOLES_MAX, "consoles") if is_console else (FOLLOWERS_MAX, "readers")
        streams = {one: of for one, of in self._streams.items() if one.is_console is is_console}
        by_host = Counter(streams.values())
        refused = None
        if not is_console and by_host[host] >= FOLLOWERS_PER_ADDRESS_MAX:
            refused = f"{FOLLOWERS_PER_ADDRESS_MAX} readers of {host} follow already"
        elif len(streams) >= most:
            fullest, count = by_host.most_common(1)[0]
            if count <= by_host[host] + 1:
                refused = f"{most} {kind} follow already"
            else:
                self._end_newest_of(fullest, streams, host)
        if refused is not None:
            raise RefusalError(HTTPStatus.SERVICE_UNAVAILABLE, refused)

    def _end_newest_of(
        self, fullest: str, streams: Mapping[DecisionStream, str], host: str
    ) -> None:
        newest = [one for one, of in streams.items() if of == fullest][-1]
        message = "a reader of the decisions from %s gives way to one from %s: all places are taken"
        logger.info(message, fullest, host)
        del self._streams[newest]
        newest.close()

    async def _send(
        self,
        request: web.Request,
        remembered: Iterable[dict[str, Any]],
        stream: DecisionStream,
        count: int,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        may_read = caller_of(request).may_read if stream.selection.records else _nothing
        others = None
        try:
            await response.prepare(request)
            if read_choice(request.query, "brokers", BROKERS) == ALL:
                others = reported_task(
                    self._send_others(request, response, count), "following other brokers"
                )
            await _write(response, remembered)
            while (waiting := await stream.take()) is not None:
                await self._send_events(response, waiting.events, may_read)
                if waiting.lost:
                    await _write(response, [self._told({"event": "lost", "count": waiting.lost})])
                if waiting.fence:
                    await _write(response, [self._told({"event": "fence", "fence": waiting.fence})])
                await asyncio.sleep(_CONSOLE_GATHER_S if stream.is_console else _GATHER_S)
            if others is not None:  # nothing may be written behind the end
                others.cancel()
                await asyncio.gather(others, return_exceptions=True)
            await response.write_eof()
        except ClientConnectionError:
            pass  # the reader has disconnected
        finally:
            if others is not None:
                others.cancel()
        return response

    async def _send_events(
        self,
        response: web.StreamResponse,
        events: Sequence[Event],
        may_read: Callable[[str], bool],
    ) -> None:
        """Sends events, those with many bytes of records one by one: they are encoded in a thread."""
        for is_large, some in groupby(events, _is_large):
            if not is_large:
                await _write(response, self._documents(some, may_read))
                continue
            for event in some:
                readable = {topic for _, topic, _ in event.subjects() if topic and may_read(topic)}
                encode = partial(self._encoded_in_parts, event, readable.__contains__)
                for part in await for_client(ADMIN_PORT, encode):
                    await response.write(part)

    def _encoded_in_parts(self, event: Event, may_read: Callable[[str], bool]) -> list[bytes]:
        """A line of the stream, for a thread, which gives the interpreter back after each batch."""
        (document,) = self._documents([event], may_read)
        batches = document.pop("batches")
        head = _encoder.encode(document)[:-1] + ',"batches":['
        rows = (_encoder.encode(batch) + "," for batch in batches)
        parts = [head, *rows]
        parts[-1] = parts[-1][:-1]
        return [part.encode() for part in (*parts, "]}\n")]

    async def _send_others(
        self, request: web.Request, response: web.StreamResponse, count: int
    ) -> None:
        """Sends what the other brokers decide, each with its own lines, until it is cancelled."""
        own_id, following = self._broker.config.broker_id, dict[int, asyncio.Task[None]]()
        try:
            while True:
                for broker_id in self._broker.membership.brokers:
                    if broker_id != own_id and broker_id not in following:
                        work = self._send_other(request, response, broker_id, count)
                        name = f"following broker {broker_id}"
                        following[broker_id] = reported_task(work, name)
                await asyncio.sleep(_LOOK_FOR_BROKERS_S)
        finally:
            for task in following.values():
                task.cancel()
            await asyncio.gather(*following.values(), return_exceptions=True)

    async def _send_other(
        self, request: web.Request, response: web.StreamResponse, broker_id: int, count: int
    ) -> None:
        """Asks one broker again and again for what it has decided since: it keeps nothing for us."""
        caller, after, most = caller_of(request), 0, count
        with contextlib.suppress(ClientConnectionError):
            while True:
                query = {**request.query, "after": str(after), "n": str(most)}
                try:
                    found = await ask_peer(
                        self._broker, broker_id, "events", caller, query=query, names={}
                    )
                except RefusalError:
                    await asyncio.sleep(_ASK_AGAIN_S)
                    continue
                events = [{**event, "broker_id": broker_id} for event in found["events"]]
                if found["lost"]:
                    lost = {"event": "lost", "broker_id": broker_id, "count": found["lost"]}
                    events.insert(0, lost)
                await _write(response, events)
                after, most = found["number"], LIST_MAX
                await asyncio.sleep(_ASK_OTHERS_S)

    def _documents(
        self, events: Iterable[Event], may_read: Callable[[str], bool] = _nothing
    ) -> Iterable[dict[str, Any]]:
        return (self._told(event_document(event, may_read)) for event in events)

    def _told(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document with the broker's id, so that a client following several can merge streams."""
        return {
            "event": document.pop("event"),
            "broker_id": self._broker.config.broker_id,
            **document,
        }


def _check_records(broker: BrokerView, caller: Caller) -> None:
    """Raises `RefusalError` if the caller may not have the records of requests: this port is no way around a log-in."""
    caller.check_may_change()
    caller.require_cluster(AclOperation.ALTER)
    is_known = caller.principal != ANONYMOUS or broker.access is not None
    if not is_known and refusal(broker.config) is not None:
        raise RefusalError(
            HTTPStatus.FORBIDDEN,
            "records: other machines reach this broker, and its admin port asks for nothing; "
            "set admin_token_file, or allow_faults=true if it is there for tests",
        )
    logger.info("%s records requests with their records from %s", caller.principal, caller.address)


def _read_selection(broker: BrokerView, request: web.Request, caller: Caller) -> Selection:
    """The events that the caller asks for. Raises `RefusalError` if it may not have the records in them."""
    query = request.query
    requests, records = read_fact(query, "requests"), read_fact(query, "records")
    if requests and not read_fact(query, "follow"):
        raise RefusalError(HTTPStatus.BAD_REQUEST, "requests: takes follow=true; none are kept")
    if requests and read_choice(query, "brokers", BROKERS) == ALL:
        raise RefusalError(HTTPStatus.BAD_REQUEST, "requests: takes brokers=own; ask each broker")
    if records and not requests:
        raise RefusalError(HTTPStatus.BAD_REQUEST, "records: takes requests=true")
    if records:
        _check_records(broker, caller)
    selection = read_selection(query, caller.may_see)
    return selection._replace(requests=requests, records=records)


def _is_large(event: Event) -> bool:
    return isinstance(event, RequestSeen) and event.record_bytes > _RECORD_BYTES_AT_ONCE


async def _end_with_token(caller: Caller, stream: DecisionStream) -> None:
    while await caller.is_let_in():  # noqa: ASYNC110 - a file tells no one
        await asyncio.sleep(LOOK_INTERVAL_S)
    message = "%s no longer follows the decisions from %s: its token is not valid any more"
    logger.info(message, caller.principal, caller.address)
    stream.close()


async def _write(response: web.StreamResponse, documents: Iterable[dict[str, Any]]) -> None:
    """Writes a few lines at a time; this is where a slow reader is waited for."""
    rest = iter(documents)
    while lines := [_encode(document) for document in islice(rest, _LINES_AT_ONCE)]:
        await response.write("".join(lines).encode())


def _encode(document: dict[str, Any]) -> str:
    return _encoder.encode(document) + "\n"
