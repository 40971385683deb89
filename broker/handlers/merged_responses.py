"""The answer to a partly refused request: the rows of both parts, in one response.

Uses kio, which reads and writes every version; requests that no rule touches are never read this way.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import io
from collections.abc import Callable
from typing import Any, Final

from broker.handlers.request_topics import topic_key
from protocol.registry import Api

_TOPICS: Final = {
    "produce": "responses",
    "fetch": "responses",
    "list_offsets": "topics",
    "describe_producers": "topics",
    "metadata": "topics",
    "create_topics": "topics",
}
"""The field with one row per topic. An API not listed here is refused as a whole."""
_PARTITIONS: Final = {
    "produce": "partition_responses",
    "fetch": "partitions",
    "list_offsets": "partitions",
    "describe_producers": "partitions",
}


def merge(api: Api, version: int, answered: bytes, refused: bytes) -> bytes:
    """The answer with the rows of the refusal, in place of its own or in addition to them."""
    if api.name not in _TOPICS:
        return refused
    read, write = _codec(api.name, version)
    answer, refusal = read(answered), read(refused)
    field = _TOPICS[api.name]
    rows = {topic_key(row): row for row in getattr(answer, field)}
    for row in getattr(refusal, field):
        key = topic_key(row)
        rows[key] = _merge_topic(api.name, rows[key], row) if key in rows else row
    return write(dataclasses.replace(answer, **{field: tuple(rows.values())}))


def _merge_topic(api: str, answered: Any, refused: Any) -> Any:
    field = _PARTITIONS.get(api)
    if field is None:
        return refused
    rows = {_row_index(row): row for row in getattr(answered, field)}
    rows |= {_row_index(row): row for row in getattr(refused, field)}
    return dataclasses.replace(answered, **{field: tuple(rows.values())})


def _row_index(row: Any) -> int:
    found = getattr(row, "index", None)
    return int(row.partition_index if found is None else found)


@functools.cache
def _codec(name: str, version: int) -> tuple[Callable[[bytes], Any], Callable[[Any], bytes]]:
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
