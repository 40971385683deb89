"""HTTP as bytes: exact headers, and what really came back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

_TIMEOUT_S = 20.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    document: Any


async def ask(address: str, head: str, *headers: str, body: bytes = b"") -> Answer:
    """Sends one request on a separate connection, which it asks to be closed afterwards."""
    return await ask_lines(address, [head, *headers, "Connection: close"], body)


async def ask_lines(address: str, lines: Sequence[str], body: bytes = b"") -> Answer:
    """The lines as they are, and `body`; a body gets its length."""
    if body:
        lines = [*lines, f"Content-Length: {len(body)}"]
    data = "".join(f"{line}\r\n" for line in lines) + "\r\n"
    return read_answer(await talk(address, data.encode("latin-1") + body))


async def talk(address: str, data: bytes) -> bytes:
    """Everything that comes back until the broker closes the connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        writer.write(data)
        async with asyncio.timeout(_TIMEOUT_S):
            return await reader.read()
    finally:
        writer.close()


def read_answer(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    is_json = headers.get("content-type", "").startswith("application/json")
    return Answer(int(status.split()[1]), headers, json.loads(body) if body and is_json else body)
