"""A front of fake-gcs-server that takes uploads as Google's XML API has them, which that server does not serve.

An upload (`PUT /BUCKET/NAME` with `x-goog-if-generation-match` and `x-goog-meta-*`) becomes one of the JSON API with the same
condition and metadata. Everything else is passed on as it is: the server stores, compares generations, reads and lists.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import unquote, urlencode

_METADATA: Final = "x-goog-meta-"
_BOUNDARY: Final = "part-of-an-upload"
_HOP: Final = frozenset({"connection", "content-length", "host", "transfer-encoding"})


@contextmanager
def google_front(port: int) -> Iterator[int]:
    """Serves the server at `port`; yields the front's own port."""
    handler = type("Handler", (_Handler,), {"server_at": port})
    front = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=front.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield front.server_port
    finally:
        front.shutdown()
        front.server_close()


def create_bucket(port: int, name: str) -> None:
    """Creates a bucket on the server at `port`."""
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"name": name})
    server.request("POST", "/storage/v1/b?project=p", body, {"Content-Type": "application/json"})
    assert server.getresponse().status == 200
    server.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_at: int

    def do_PUT(self) -> None:
        bucket, _, name = unquote(self.path).lstrip("/").partition("/")
        query = {"uploadType": "multipart", "name": name}
        condition = self.headers.get("x-goog-if-generation-match")
        if condition is not None:
            query["ifGenerationMatch"] = condition
        metadata = {
            key.lower().removeprefix(_METADATA): value
            for key, value in self.headers.items()
            if key.lower().startswith(_METADATA)
        }
        parts = (json.dumps({"name": name, "metadata": metadata}).encode(), self._body())
        body = b"".join(
            b"--%b\r\nContent-Type: application/octet-stream\r\n\r\n%b\r\n"
            % (_BOUNDARY.encode(), part)
            for part in parts
        )
        self._pass_on(
            "POST",
            f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}",
            body + b"--%b--\r\n" % _BOUNDARY.encode(),
            {"Content-Type": f"multipart/related; boundary={_BOUNDARY}"},
        )

    def do_GET(self) -> None:
        self._pass_on("GET", self.path, self._body(), self._headers())

    def do_DELETE(self) -> None:
        self._pass_on("DELETE", self.path, self._body(), self._headers())

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _headers(self) -> dict[str, str]:
        return {key: value for key, value in self.headers.items() if key.lower() not in _HOP}

    def _pass_on(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> None:
        server = http.client.HTTPConnection("127.0.0.1", self.server_at, timeout=30)
        try:
            server.request(method, target, body, headers)
            answer = server.getresponse()
            data = answer.read()
        finally:
            server.close()
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in _HOP:
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
