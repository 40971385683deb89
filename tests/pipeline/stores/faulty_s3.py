"""An S3 server with faults: it loses answers, refuses, stalls and forgets the condition, as a script says."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.pipeline.stores.servers import BUCKET, Store, s3_options

_METADATA: Final = "x-amz-meta-"


class Fault(enum.Enum):
    """One way to answer a PUT."""

    NONE = "as a good store"
    LOST = "stored or refused, and the connection is cut"
    NOT_STORED = "cut before anything is stored"
    CONFLICT = "409, and nothing is stored"
    BROKEN = "500, and nothing is stored"
    BUSY = "503, and nothing is stored"
    BROKEN_AFTERWARDS = "500, although it is stored"
    STALLED = "stored only after the next request for it"
    UNCONDITIONAL = "the condition is ignored"


class Stored(NamedTuple):
    """An object."""

    data: bytes
    metadata: dict[str, str]


class FaultyS3:
    """The objects of one bucket. `choose` names the fault of each PUT."""

    def __init__(self, choose: Callable[[], Fault]) -> None:
        self._choose = choose
        self._lock = threading.Lock()
        self._objects: dict[str, Stored] = {}
        self._stalled: dict[str, list[Stored]] = {}
        self.seen: list[Fault] = []
        """The faults of the PUTs so far."""

    def put(self, key: str, new: Stored, *, is_conditional: bool) -> int:
        """Returns the status; 0 for none."""
        with self._lock:
            fault = self._choose()
            self.seen.append(fault)
            for late in self._stalled.pop(key, ()):
                self._objects.setdefault(key, late)
            refused = {Fault.CONFLICT: 409, Fault.BROKEN: 500, Fault.BUSY: 503, Fault.NOT_STORED: 0}
            if fault in refused:
                return refused[fault]
            if fault is Fault.STALLED:
                self._stalled.setdefault(key, []).append(new)
                return 0
            if is_conditional and key in self._objects and fault is not Fault.UNCONDITIONAL:
                return 0 if fault is Fault.LOST else 412
            self._objects[key] = new
            return {Fault.LOST: 0, Fault.BROKEN_AFTERWARDS: 500}.get(fault, 200)

    def get(self, key: str) -> Stored | None:
        with self._lock:
            return self._objects.get(key)

    def keys(self, prefix: str) -> list[str]:
        with self._lock:
            return sorted(key for key in self._objects if key.startswith(prefix))

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(key, None)


@contextmanager
def faulty_s3(choose: Callable[[], Fault]) -> Iterator[tuple[Store, FaultyS3]]:
    """Serves a bucket whose faults `choose` names."""
    bucket = FaultyS3(choose)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"bucket": bucket}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield Store(f"s3://{BUCKET}/l", s3_options(server.server_port)), bucket
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 64
    """Writers that connect at once: one that finds no room tries again after a second."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: FaultyS3

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        metadata = {k: v for k, v in self.headers.items() if k.lower().startswith(_METADATA)}
        is_conditional = self.headers.get("If-None-Match") == "*"
        status = self.bucket.put(self._key, Stored(data, metadata), is_conditional=is_conditional)
        if status:
            self._answer(status, headers={"ETag": '"1"'})
        else:
            self.close_connection = True

    def do_GET(self) -> None:
        if not self._key:
            prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
            self._answer(200, _listing(self.bucket, prefix).encode())
            return
        found = self.bucket.get(self._key)
        if found is None:
            self._answer(404)
        else:
            self._answer(200, found.data, {"ETag": '"1"', "Last-Modified": _DATE, **found.metadata})

    def do_DELETE(self) -> None:
        self.bucket.delete(self._key)
        self._answer(204)

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")

    def _answer(
        self, status: int, data: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


_DATE: Final = "Sat, 28 Nov 2026 09:00:00 GMT"


def _listing(bucket: FaultyS3, prefix: str) -> str:
    """The keys right below the prefix, in XML."""
    keys = bucket.keys(prefix)
    here = [key for key in keys if "/" not in key[len(prefix) :]]
    below = {prefix + key[len(prefix) :].partition("/")[0] + "/" for key in keys if key not in here}
    rows = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-28T09:00:00.000Z</LastModified>"
        "<ETag>1</ETag><Size>1</Size></Contents>"
        for key in here
    )
    prefixes = "".join(
        f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(below)
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}{prefixes}</ListBucketResult>"
