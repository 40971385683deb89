"""A token endpoint of the test run: issues what it is told to, over HTTPS, and remembers what it was asked.

with TokenServer(authority, lambda: issuer.token(lasts_s=60)) as server:
    options["sasl.oauthbearer.token.endpoint.url"] = server.url
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from tests.support.certificates import Authority


class TokenServer:
    """Answers each request with a new token, unless `answer` says otherwise."""

    def __init__(
        self, authority: Authority, new_token: Callable[[], str], *hosts: str, **certificate: Any
    ) -> None:
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        """Status, headers and body; None: a new token."""
        self.asked: list[tuple[str, dict[str, str], dict[str, list[str]]]] = []
        """Path, headers and fields of each request."""
        self._changed = threading.Condition()
        self._new_token = new_token
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue("issuer", *hosts, **certificate))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with server._changed:
                    server.asked.append((self.path, dict(self.headers), parse_qs(body)))
                    server._changed.notify_all()
                status, headers, answer = server.answer or server._token()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST  # noqa: N815  what a redirection would lead to

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def wait_until_asked(self, times: int, within_s: float) -> None:
        """Blocks until that many requests have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked) >= times, within_s)

    def _token(self) -> tuple[int, dict[str, str], bytes]:
        document = {"access_token": self._new_token(), "token_type": "Bearer", "expires_in": 3600}
        return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
