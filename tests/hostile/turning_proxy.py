"""A TCP proxy that leads elsewhere from one moment on: a rebound name, seen from the browser."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class TurningProxy:
    """Forwards connections to one port of this machine, and after `turn_at` to another one."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._mark: bytes | None = None
        self._later = port
        self._turned = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def turn_at(self, mark: bytes, port: int, turned: threading.Event) -> None:
        """New connections go to `port` once a client has sent `mark`; sets `turned`."""
        self._later, self._turned, self._mark = port, turned, mark

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._upstream))
            self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                thread = threading.Thread(target=self._copy, args=(source, sink))
                self._threads.append(thread)
                thread.start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._mark is not None and data.startswith(self._mark):
                    self._upstream = self._later
                    self._turned.set()
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
