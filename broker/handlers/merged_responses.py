"""The answer to a partly refused request: the rows of both parts, in one response.

Uses kio, which reads and writes every version; requests that are not refused in part never come here.
"""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from echoless.broker.handlers.request_topics import topic_key
from echoless.protocol.registry import Api


class Rows(NamedTuple):
    """The fields of a response that hold its rows."""

    topics: str
    """The field with one row per topic."""
    partitions: str | None = None
    """The field of such a row with one row per partition; None if there is none."""


def merge(api: Api, fields: Rows, version: int, answered: bytes, refused: bytes) -> bytes:
    """The answer with the rows of the refusal, in place of its own or in addition to them."""
    read, write = response_codec(api.name, version)
    answer, refusal = read(answered), read(refused)
    rows = {topic_key(row): row for row in getattr(answer, fields.topics)}
    for row in getattr(refusal, fields.topics):
        key = topic_key(row)
        rows[key] = _merge_topic(fields.partitions, rows[key], row) if key in rows else row
    return write(replace(answer, **{fields.topics: tuple(rows.values())}))


def _merge_topic(field: str | None, answered: Any, refused: Any) -> Any:
    if field is None:
        return refused
    rows = {_row_index(row): row for row in getattr(answered, field)}
    rows |= {_row_index(row): row for row in getattr(refused, field)}
    return replace(answered, **{field: tuple(rows.values())})


def _row_index(row: Any) -> int:
    for name in ("index", "partition", "partition_id"):
        found = getattr(row, name, None)
        if found is not None:
            return int(found)
    return int(row.partition_index)


@functools.cache
def response_codec(
    name: str, version: int
) -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
    """Reads and writes a response body, by kio."""
    from kio.serial import entity_reader, entity_writer

    module = importlib.import_module(f"kio.schema.{name}.v{version}.response")
    cls = getattr(module, "".join(map(str.capitalize, name.split("_"))) + "Response")
    reader, writer = entity_reader(cls), entity_writer(cls)

    def write(entity: Any) -> bytes:
        out = io.BytesIO()
        writer(out, entity)
        return out.getvalue()

    return lambda body: reader(body, 0)[0], write
