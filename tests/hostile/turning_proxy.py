"""A TCP proxy that leads elsewhere from one moment on: a rebound name, seen from the browser."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
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
        self._leading: dict[socket.socket, socket.socket] = {}
        """The clients that have sent something, and where they lead."""
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
        """Requests on other connections go to `port` once a client has sent `mark`; sets `turned`.

        A browser opens connections that it may need: where such a one leads is decided by its first bytes. Those that
        have led elsewhere are closed.
        """
        self._later, self._turned, self._mark = port, turned, mark

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            self._start(self._forward, client)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _forward(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._mark is not None and data.startswith(self._mark):
                    self._turn(client)
                if server is None:
                    server = socket.create_connection(("127.0.0.1", self._upstream))
                    self._open.append(server)
                    self._leading[client] = server
                    self._start(self._return, server, client)
                server.sendall(data)
        _shut(client)
        if server is not None:
            _shut(server)

    def _return(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        _shut(client)
        _shut(server)

    def _turn(self, by: socket.socket) -> None:
        self._upstream = self._later
        for client, server in list(self._leading.items()):
            if client is not by:
                _shut(client)
                _shut(server)
        self._turned.set()


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
