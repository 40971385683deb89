"""Answers with many rows, built in turns of the event loop and encoded in a thread.

A page may list ten thousand producers or partitions. Each row is read in its turn, so the rows of one
answer may be of different moments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

from echoless.broker.network.turns import ADMIN_PORT, for_client, work_in_turns

ENCODED_AT_ONCE: Final = 100
"""Rows that are encoded on the event loop, in less than a millisecond."""


async def answer_rows(
    head: Mapping[str, Any], lists: Mapping[str, Iterator[dict[str, Any]]]
) -> web.Response:
    """Answers with the fields of `head`, followed by the lists."""
    document, count = dict(head), 0
    for name, rows in lists.items():
        document[name] = found = list[dict[str, Any]]()
        await work_in_turns(map(found.append, rows))
        count += len(found)
    return await encoded(document, count)


async def encoded(document: Mapping[str, Any], rows: int) -> web.Response:
    """Answers with a document of so many rows."""
    if rows <= ENCODED_AT_ONCE:
        return web.json_response(document)
    return web.json_response(text=await for_client(ADMIN_PORT, partial(json_text, document)))


def json_text(value: Any) -> str:
    """The document as JSON, for a thread: `json.dumps` of all of it would not give the interpreter back before the end."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key)}: {json_text(one)}" for key, one in value.items())
            + "}"
        )
    if not isinstance(value, list):
        return json.dumps(value)
    if any(
        isinstance(one, dict) and any(isinstance(inner, list) for inner in one.values())
        for one in value
    ):
        return "[" + ", ".join(map(json_text, value)) + "]"
    slices = (value[at : at + ENCODED_AT_ONCE] for at in range(0, len(value), ENCODED_AT_ONCE))
    return "[" + ", ".join(json.dumps(one)[1:-1] for one in slices) + "]"
