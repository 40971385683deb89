"""Checkpoint files: small text files of version, count and one entry per line, as Kafka writes them.

    0                     the version
    2                     how many entries follow
    orders 0 1042         topic, partition, offset
    orders 1 977

`OffsetCheckpoint` is such a file of offsets by partition (recovery points, high watermarks, log
starts); `leader_epochs.py` keeps another. Formats: `docs/formats/checkpoints.md`. Every write
replaces the whole file atomically. Knows nothing of what the offsets mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from storage.file_system import FileSystem, StorageError

VERSION: Final = 0


class CheckpointError(StorageError):
    """A checkpoint file is damaged; the message names the line."""


class OffsetCheckpoint:
    """Offsets by (topic, partition) in one file."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def read(self) -> dict[tuple[str, int], int]:
        """What was written last, nothing where there is no file. Raises `CheckpointError`."""
        offsets: dict[tuple[str, int], int] = {}
        for line in read_lines(self._fs, self._path):
            topic, partition, offset = split_line(self._path, line, field_count=3)
            key = topic, parse_number(self._path, partition)
            if key in offsets:
                raise CheckpointError(self._path, f"names {topic}-{partition} twice")
            offsets[key] = parse_number(self._path, offset)
        return offsets

    def write(self, offsets: dict[tuple[str, int], int]) -> None:
        """Replaces the file, durably; sorted, so that equal offsets are equal bytes."""
        lines = (
            f"{topic} {partition} {offset}"
            for (topic, partition), offset in sorted(offsets.items())
        )
        write_lines(self._fs, self._path, lines)


def write_lines(fs: FileSystem, path: str, lines: Iterable[str]) -> None:
    """Writes version, count and the entries."""
    entries = list(lines)
    text = "".join(f"{line}\n" for line in (VERSION, len(entries), *entries))
    fs.write_atomic(path, text.encode())


def read_lines(fs: FileSystem, path: str) -> list[str]:
    """The entries, none where there is no file. Raises `CheckpointError`."""
    if not fs.exists(path):
        return []
    try:
        *lines, rest = fs.read_bytes(path).decode().split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(path, f"is not text: {error}") from error
    if rest or len(lines) < 2:
        raise CheckpointError(path, f"is cut off after {len(lines)} lines")
    version, count, *entries = lines
    if version != str(VERSION):
        raise CheckpointError(path, f"has version {version!r}, not {VERSION}")
    if parse_number(path, count) != len(entries):
        raise CheckpointError(path, f"promises {count} entries and has {len(entries)}")
    return entries


def split_line(path: str, line: str, field_count: int) -> list[str]:
    """The fields of an entry. Raises `CheckpointError` when there are more or fewer."""
    fields = line.split(" ")
    if len(fields) != field_count:
        raise CheckpointError(path, f"line {line!r} has {len(fields)} fields, not {field_count}")
    return fields


def parse_number(path: str, text: str) -> int:
    """A decimal number >= 0. Raises `CheckpointError`."""
    if not (text.isascii() and text.isdigit()):
        raise CheckpointError(path, f"{text!r} is not a number")
    return int(text)
