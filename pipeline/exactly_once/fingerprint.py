"""Fingerprint of rows: a short text that is the same for the same rows in the same order.

It consists of checksums of the rows' parts, each over all rows, however they are cut: bytes and lengths of the
keys and the values, headers, timestamps. It detects accidents, not forgery.

Headers have two: over their bytes as records have them, and over the numbers and lengths of the rows that have any.
Release 0.2 had one, over Python's texts of them, which is computed only to compare with what it has written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from echoless.client.column_bytes import bytes_of, lengths_of
from echoless.pipeline.exactly_once.rows import RowSlice
from echoless.protocol.checksum import crc32c

_NO_HEADERS: Final = "00000000"
_HEADERS_PART: Final = 4
_NO_HEADERS_BYTES: Final = 1


@dataclass(slots=True)
class Fingerprint:
    """Fingerprint of one partition's rows so far."""

    is_older: bool = False
    """Whether headers are as in release 0.2."""

    rows: int = 0
    keys: int = 0
    key_lengths: int = 0
    values: int = 0
    value_lengths: int = 0
    headers: int = 0
    header_places: int = 0
    timestamps: int = 0

    def add(self, rows: RowSlice) -> None:
        keys, values, timestamps, _ = rows.columns
        self.keys = crc32c(bytes_of(keys)[0], self.keys)
        self.key_lengths = crc32c(lengths_of(keys).tobytes(), self.key_lengths)
        self.values = crc32c(bytes_of(values)[0], self.values)
        self.value_lengths = crc32c(lengths_of(values).tobytes(), self.value_lengths)
        self.timestamps = crc32c(np.ascontiguousarray(timestamps).data, self.timestamps)
        if self.is_older:
            self._add_headers_as_text(rows)
        else:
            self._add_headers(rows)
        self.rows += rows.row_count

    def _add_headers(self, rows: RowSlice) -> None:
        if rows.columns.headers is None:
            return
        encoded = rows.columns.headers.encoded
        lengths = lengths_of(encoded)
        having = np.flatnonzero(lengths > _NO_HEADERS_BYTES)
        places = np.column_stack([having + self.rows, lengths[having]])
        self.header_places = crc32c(places.tobytes(), self.header_places)
        chosen = encoded if len(having) == len(encoded) else encoded.take(pa.array(having))
        self.headers = crc32c(bytes_of(chosen)[0], self.headers)

    def _add_headers_as_text(self, rows: RowSlice) -> None:
        for row, headers in enumerate(rows.header_tuples(), self.rows):
            if headers:
                self.headers = crc32c(repr((row, headers)).encode(), self.headers)

    def matches(self, text: str, *, compares_timestamps: bool = True) -> bool:
        """Whether these rows have the fingerprint `text`."""
        own = str(self)
        if compares_timestamps:
            return own == text
        return own.rpartition("-")[0] == text.rpartition("-")[0]

    def __str__(self) -> str:
        """Returns the text, timestamps last, since a topic with log append time has its own."""
        numbers = (self.keys, self.key_lengths, self.values, self.value_lengths)
        headers = f"{self.headers:08x}"
        if not self.is_older and self.header_places:
            headers = f"{self.header_places:08x}{headers}"
        before = "-".join(f"{number:08x}" for number in numbers)
        return f"{before}-{headers}-{self.timestamps:08x}"


def is_older(text: str) -> bool:
    """Whether release 0.2 has written it, of rows with headers."""
    headers = text.split("-")[_HEADERS_PART]
    return headers != _NO_HEADERS and len(headers) == len(_NO_HEADERS)
