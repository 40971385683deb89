"""A headless Chromium on one page, until the page has reported to the server that it came from."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

REBOUND_NAME = "evil.example"
"""Resolves to this machine, as a rebound name of an attacker does."""
_REPORT_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 10.0


class Seen(NamedTuple):
    """One request that a page's server got."""

    method: str
    path: str
    content_type: str | None
    body: bytes


class PageServer:
    """Serves one page for every GET, takes its report, and remembers everything else."""

    def __init__(self, page: str) -> None:
        self.seen: queue.SimpleQueue[Seen] = queue.SimpleQueue()
        self._reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(page.encode()))
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def report(self) -> Any:
        """Waits for the page's report and returns it."""
        return self._reports.get(timeout=_REPORT_TIMEOUT_S)

    def requests(self) -> list[Seen]:
        """Everything but the page and its report, so far."""
        return [self.seen.get() for _ in range(self.seen.qsize())]

    def _handler(self, page: bytes) -> type[BaseHTTPRequestHandler]:
        seen, reports = self.seen, self._reports

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path == "/report":
                    reports.put(json.loads(body))
                else:
                    kind = self.headers.get("Content-Type")
                    seen.put(Seen(self.command, self.path, kind, body))
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler


@contextmanager
def browsing(url: str, directory: Path) -> Iterator[None]:
    """Chromium has the page open while the block runs."""
    process = subprocess.Popen(
        [
            "chromium",
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-extensions"),
            f"--host-resolver-rules=MAP {REBOUND_NAME} 127.0.0.1",
            f"--user-data-dir={directory}",
            url,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
