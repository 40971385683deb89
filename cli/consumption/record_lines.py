"""Records as lines of standard output: values as they are, or JSON with every field.

On a terminal, control characters are shown as escapes, since a value may hold commands for the terminal.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from typing import Any

from echoless.client.copier.records import InputRecord

_NULL = b"null"


class RecordLines:
    """Writes records to standard output."""

    def __init__(self, key_separator: str | None, *, as_json: bool) -> None:
        self._separator = None if key_separator is None else key_separator.encode()
        self._as_json = as_json
        self._is_terminal = sys.stdout.isatty()

    def write(self, records: Iterable[InputRecord]) -> None:
        """Returns when they have left the process."""
        out = sys.stdout.buffer
        out.writelines(self._line(record) + b"\n" for record in records)
        out.flush()

    def _line(self, record: InputRecord) -> bytes:
        if self._as_json:
            return json.dumps(_document(record), separators=(",", ":")).encode()
        line = _NULL if record.value is None else record.value
        if self._separator is not None:
            line = (_NULL if record.key is None else record.key) + self._separator + line
        return _escaped(line) if self._is_terminal else line


def _document(record: InputRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json_text(record.key),
        "value": _json_text(record.value),
        "headers": [[name, _json_text(value)] for name, value in record.headers],
    }


def _json_text(data: bytes | None) -> str | dict[str, str] | None:
    """Text if it is UTF-8, else `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _escaped(line: bytes) -> bytes:
    text = line.decode("utf-8", "backslashreplace")
    return "".join(
        one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode()
        for one in text
    ).encode()
