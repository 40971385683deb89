"""Records the decisions of one or several brokers while a block runs.

    with Recorder([broker.admin]) as recorder:
        ...
    Path("run.svg").write_text(render_svg(recorder.events))

Recording starts before the block's first line and ends when everything that happened in the block
has arrived. Earlier events are left out, unless `last` requests them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlencode

from echoless.testkit.admin import Admin, AdminError, reason_of

if TYPE_CHECKING:
    from ssl import SSLContext

Event = dict[str, Any]
"""A decision, a fault or a note, as `/decisions?follow=true` has it (`docs/admin.md`)."""

_SETTLE_S: Final = 10.0
_CONNECT_S: Final = 10.0


class Recorder:
    """Records the decisions of brokers while a block runs, for `render_svg`. Thread-safe."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        last: int = 0,
        token: str | None = None,
        tls: SSLContext | None = None,
        requests: bool = False,
        records: bool = False,
        keep: Callable[[Event], None] | None = None,
        **selection: object,
    ) -> None:
        """`addresses` are admin ports (`host:port`) that take `token` and speak `tls`.

        `last`: the number of earlier decisions to begin with. `requests`: each request besides, with its `records`.
        `keep` takes each event in the place of `events`, in any thread, one at a time. `selection`: producer_id,
        topic, partition.
        """
        given = {name: value for name, value in selection.items() if value is not None}
        self._changed = threading.Condition()
        self._events: list[Event] = []
        self._keep = self._events.append if keep is None else keep
        query = {**given, "n": last, "follow": "true"}
        wanted = {"requests": requests, "records": records}
        query |= {name: "true" for name, is_wanted in wanted.items() if is_wanted}
        self._streams = [
            _Stream(Admin(address, token=token, tls=tls), query, self._take)
            for address in addresses
        ]

    @property
    def events(self) -> list[Event]:
        """The events so far, in order of arrival; may be read while recording continues."""
        with self._changed:
            return list(self._events)

    @property
    def has_ended(self) -> bool:
        """Whether every broker has ended its stream."""
        return not any(stream.is_alive for stream in self._streams)

    def note(self, text: str, broker_id: int | None = None) -> None:
        """Adds a note to be shown between the decisions."""
        note: Event = {"event": "note", "time_ms": time.time_ns() // 1_000_000, "text": text}
        self._take(note if broker_id is None else {**note, "broker_id": broker_id})

    def __enter__(self) -> Self:
        """Starts recording. Raises `AdminError` if a broker does not answer."""
        try:
            for stream in self._streams:
                stream.connect()
                stream.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc_type is None:
                self.settle()
            else:  # the block's error is the one to report
                with contextlib.suppress(AdminError):
                    self.settle()
        finally:
            self._close()

    def settle(self) -> None:
        """Waits until everything that has happened so far has arrived from the running brokers.

        Raises `AdminError` if part of it is missing and nothing has arrived for ten seconds.
        """
        for stream in self._streams:
            has_arrived = partial(stream.has_passed, stream.set_fence())
            with self._changed:
                while not has_arrived():
                    if not self._changed.wait(_SETTLE_S):
                        message = f"nothing arrived for {_SETTLE_S:g} s, and part is missing"
                        raise AdminError(stream.url, message)

    def _close(self) -> None:
        for stream in self._streams:
            stream.close()

    def _take(self, event: Event | None) -> None:
        """Keeps an event; None says that a stream has ended, or passed a fence."""
        with self._changed:
            if event is not None:
                self._keep(event)
            self._changed.notify_all()


class _Stream:
    """The connection to one broker, and the thread that reads it."""

    def __init__(
        self, port: Admin, query: dict[str, Any], take: Callable[[Event | None], None]
    ) -> None:
        self.is_alive = False
        self._port = port
        self._passed = 0
        self._name = uuid.uuid4().hex
        self._path = f"/decisions?{urlencode(query)}"
        self._take = take
        self._connection = port.connection(_CONNECT_S)
        self._socket: socket.socket | None = None
        self._answer: http.client.HTTPResponse | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The URL that is read, for messages."""
        return self._port.url(self._path)

    def connect(self) -> None:
        """Returns when the broker has begun to answer: later events will arrive."""
        url = self.url
        try:
            path = f"{self._path}&name={self._name}"
            self._connection.request("GET", path, headers=self._port.headers)
            self._socket = self._connection.sock
            answer = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(url, reason_of(error)) from error
        if answer.status != http.HTTPStatus.OK:
            raise AdminError(url, answer.read().decode(errors="replace"), answer.status)
        self._socket.settimeout(None)
        self._answer = answer

    def start(self) -> None:
        """Starts reading, once connected."""
        assert self._answer is not None, "not connected"
        self.is_alive = True
        self._thread = threading.Thread(target=self._read, args=[self._answer], daemon=True)
        self._thread.start()

    def set_fence(self) -> int:
        """Has the broker send a fence behind all that has happened; 0 if it has exited, or knows none."""
        try:
            answer: dict[str, int] = self._port.post(f"/decisions/fences/{self._name}", None)
        except AdminError:
            return 0
        return answer["fence"]

    def has_passed(self, fence: int) -> bool:
        """Whether everything before the fence has arrived, or nothing will any more."""
        return self._passed >= fence or not self.is_alive

    def close(self) -> None:
        if self._thread is not None:
            self._shut_down()
            self._thread.join()
        self._connection.close()

    def _shut_down(self) -> None:
        """Wakes the thread, which may be reading."""
        assert self._socket is not None
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the broker was faster

    def _read(self, answer: http.client.HTTPResponse) -> None:
        try:
            while line := answer.readline():
                event: Event = json.loads(line)
                is_fence = event["event"] == "fence"
                if is_fence:
                    self._passed = event["fence"]
                self._take(None if is_fence else event)
        except (OSError, ValueError, http.client.HTTPException):
            pass  # it was killed, perhaps in the middle of a line
        finally:
            self.is_alive = False
            self._take(None)
