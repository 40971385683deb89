"""A broker under attack: what the tests send to it, and what they look at afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.echoless import Echoless

TIMEOUT_S = 120.0
"""Only a hang takes so long: a machine that is slow five times over still stores 20,000 records in a quarter of it."""
LOG_LINE = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ +\S+: |ready )")


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def header(api_key: int, version: int, client_id: bytes = b"bad", *, flexible: bool) -> bytes:
    """A request header of version 1, or 2 where `flexible`."""
    fixed = struct.pack(">hhih", api_key, version, 1, len(client_id))
    return fixed + client_id + b"\0" * flexible


def talk(address: str, data: bytes, *, finish: bool = True) -> bytes:
    """Sends bytes on a separate connection; returns everything received until the broker ends it.

    With `finish` the sending side is closed first, so that a broker still waiting for bytes sees
    the end.
    """
    with connect(address) as connection:
        try:
            connection.sendall(data)
            if finish:
                with contextlib.suppress(OSError):  # who was turned away is not connected any more
                    connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionError:
            return b""


API_VERSIONS = framed(header(18, 0, flexible=False))


def is_answering(address: str) -> bool:
    """Whether a new client gets its ApiVersions."""
    return len(talk(address, API_VERSIONS)) > 20


def resident_bytes(broker: Echoless) -> int:
    pages = Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def open_files(broker: Echoless) -> int:
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))  # noqa: PTH208


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for another process."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.01)


def admin(broker: Echoless, path: str) -> tuple[int, Any]:
    """Status and JSON document of the admin port."""
    try:
        with urllib.request.urlopen(f"http://{broker.admin_address}{path}", timeout=TIMEOUT_S) as r:
            return r.status, json.load(r)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def assert_quiet_log(broker: Echoless) -> None:
    """Checks that every line has the log format, and none shows an exception."""
    for line in broker.process.log().splitlines():
        assert LOG_LINE.match(line), f"a forged or broken line: {line!r}"
        assert "Traceback" not in line, line
