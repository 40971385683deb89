"""Fingerprint of rows: a short text that is the same for the same rows in the same order.

It consists of checksums of the rows' parts, each over all rows, however they are cut: bytes and lengths of the
keys and the values, headers, timestamps. It detects accidents, not forgery.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from echoless.client.columns import bytes_of, lengths_of
from echoless.pipeline.exactly_once.rows import RowSlice
from echoless.protocol.checksum import crc32c


@dataclass(slots=True)
class Fingerprint:
    """Fingerprint of one partition's rows so far."""

    rows: int = 0
    keys: int = 0
    key_lengths: int = 0
    values: int = 0
    value_lengths: int = 0
    headers: int = 0
    timestamps: int = 0

    def add(self, rows: RowSlice) -> None:
        keys, values, timestamps = rows.columns
        self.keys = crc32c(bytes_of(keys)[0], self.keys)
        self.key_lengths = crc32c(lengths_of(keys).tobytes(), self.key_lengths)
        self.values = crc32c(bytes_of(values)[0], self.values)
        self.value_lengths = crc32c(lengths_of(values).tobytes(), self.value_lengths)
        self.timestamps = crc32c(np.ascontiguousarray(timestamps).data, self.timestamps)
        for row, headers in enumerate(rows.header_tuples(), self.rows):
            if headers:
                self.headers = crc32c(repr((row, headers)).encode(), self.headers)
        self.rows += rows.row_count

    def matches(self, text: str, *, compares_timestamps: bool = True) -> bool:
        """Whether these rows have the fingerprint `text`."""
        own = str(self)
        if compares_timestamps:
            return own == text
        return own.rpartition("-")[0] == text.rpartition("-")[0]

    def __str__(self) -> str:
        """Returns the text, timestamps last, since a topic with log append time has its own."""
        numbers = (self.keys, self.key_lengths, self.values, self.value_lengths, self.headers)
        return "-".join(f"{number:08x}" for number in (*numbers, self.timestamps))
