"""The records of a native produce message, and those of a fetch answer.

One record: a map with `key` and `value` (bytes or text or nil), `headers` (an array of pairs: a
text, and bytes or text or nil) and `timestamp` (ms; left out: -1, none). A timestamp supplied by
the broker would differ when the message is sent again, and the repeat would look like another
batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from echoless.protocol.native.fields import Fields
from echoless.protocol.record_batch import NO_TIMESTAMP
from echoless.protocol.records import Headers, Record

RECORDS_BYTES_MAX: Final = 2 * 1024 * 1024
"""Limit on one message; more goes into a ready-made batch."""


def read_message_records(fields: Fields) -> list[Record]:
    """The `records` of a message. Raises `KafkaError` INVALID_REQUEST naming the record."""
    entries = fields.array("records", RECORDS_BYTES_MAX)
    return [_record(fields, index, entry) for index, entry in enumerate(entries)]


def to_entries(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Records in the form that a fetch answer has."""
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": [list(header) for header in record.headers],
        }
        for record in records
    ]


def _record(fields: Fields, index: int, entry: Any) -> Record:
    where = f"record {index}"
    if not isinstance(entry, dict):
        raise fields.complaint(f"{where} is a map, not {type(entry).__name__}")
    timestamp = entry.get("timestamp", NO_TIMESTAMP)
    if type(timestamp) is not int or not NO_TIMESTAMP <= timestamp < 2**63:
        raise fields.complaint(f"{where}: timestamp takes milliseconds, or -1 for none")
    return Record(
        index,
        timestamp,
        _bytes(fields, f"{where}: key", entry.get("key")),
        _bytes(fields, f"{where}: value", entry.get("value")),
        _headers(fields, where, entry.get("headers") or []),
    )


def _headers(fields: Fields, where: str, pairs: Any) -> Headers:
    if not isinstance(pairs, list):
        raise fields.complaint(f"{where}: headers is an array of [key, value]")
    headers = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise fields.complaint(f"{where}: a header is [key, value], its key a text")
        headers.append((pair[0], _bytes(fields, f"{where}: header {pair[0]!r}", pair[1])))
    return headers


def _bytes(fields: Fields, where: str, value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, bytes):
        return value
    raise fields.complaint(f"{where} takes bytes, text or nil, not {type(value).__name__}")
