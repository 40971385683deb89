"""Checkpoint files: small text files of version, count, one entry per line and a checksum.

    1                     the version
    2                     how many entries follow
    orders 0 1042         topic, partition, offset
    orders 1 977
    crc32c 4c7f6f2d       of all the bytes before this line

Version 0 is Kafka's: the same without the checksum. It is read but never written.

`OffsetCheckpoint` is such a file with offsets by partition (recovery points, high watermarks, log
starts); `leader_epochs.py` writes another. Formats: `docs/formats/checkpoints.md`. Every write
replaces the whole file atomically. Knows nothing of what the offsets mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from echoless.protocol.checksum import crc32c
from echoless.storage.file_system import FileSystem, StorageError
from echoless.storage.newer_format import is_newer, newer_format

Partition = tuple[str, int]

VERSION: Final = 1
_VERSION_OF_KAFKA: Final = 0
_CHECKSUM: Final = "crc32c"


class CheckpointError(StorageError):
    """A checkpoint file is damaged; the message names the line."""


class NewerCheckpointError(CheckpointError):
    """A checkpoint file is of a newer version, and as good as ever."""


class OffsetCheckpoint:
    """Offsets by (topic, partition) in one file, which no one else writes.

    The lines on disk are kept in memory: a change of one offset formats one line, and joins the rest.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._lines: dict[Partition, bytes] | None = None
        """The lines on disk, sorted by partition; None: not known. Replaced as a whole, so any thread may look."""

    def read(self) -> dict[Partition, int]:
        """Reads the file; empty if there is none. Raises `CheckpointError`."""
        offsets: dict[Partition, int] = {}
        for line in read_lines(self._fs, self._path):
            topic, partition, offset = split_line(self._path, line, field_count=3)
            key = topic, parse_number(self._path, partition)
            if key in offsets:
                raise CheckpointError(self._path, f"names {topic}-{partition} twice")
            offsets[key] = parse_number(self._path, offset)
        self._lines = {key: _line(key, offset) for key, offset in sorted(offsets.items())}
        return offsets

    def forget_damage(self) -> None:
        """Goes on as if the file were empty; the next change replaces it."""
        self._lines = {}

    def get(self, key: Partition) -> int:
        """The partition's offset on disk; 0 without one, or while that is not known. From any thread: reads no file."""
        line = (self._lines or {}).get(key)
        return 0 if line is None else int(line.rpartition(b" ")[2])

    def lower(self, key: Partition, offset: int) -> None:
        """Lowers the partition's offset to `offset` at most, durably. Raises as `change`."""
        if key in self._known() and self.get(key) > offset:
            self.change({key: offset})

    def partitions(self) -> Collection[Partition]:
        """Every partition in the file."""
        return self._known().keys()

    def write(self, offsets: Mapping[Partition, int]) -> None:
        """Replaces the file, durably; sorted, so that equal offsets are equal bytes."""
        self._replace({key: _line(key, offset) for key, offset in sorted(offsets.items())})

    def change(
        self, offsets: Mapping[Partition, int], *, without: Collection[Partition] = ()
    ) -> None:
        """Writes other offsets of these partitions, durably, and drops those of others; all else stays.

        Does nothing where that changes nothing. Raises `CheckpointError`, `StorageError`.
        """
        before = self._known()
        after = {**before, **{key: _line(key, offset) for key, offset in offsets.items()}}
        for key in without:
            after.pop(key, None)
        if after == before:
            return
        if any(key not in before for key in offsets):
            after = dict(sorted(after.items()))
        self._replace(after)

    def _known(self) -> Mapping[Partition, bytes]:
        """The lines on disk, read if they are not known. Raises `CheckpointError`, `StorageError`."""
        if self._lines is None:
            self.read()
        return self._lines or {}

    def _replace(self, lines: dict[Partition, bytes]) -> None:
        data = b"%d\n%d\n" % (VERSION, len(lines)) + b"".join(lines.values())
        try:
            self._fs.write_atomic(self._path, data + f"{_checksum_line(data)}\n".encode())
        except BaseException:
            self._lines = None  # the file may have been replaced, or not
            raise
        self._lines = lines


def _line(key: Partition, offset: int) -> bytes:
    topic, partition = key
    return f"{topic} {partition} {offset}\n".encode()


def write_lines(fs: FileSystem, path: str, lines: Iterable[str], *, sync_name: bool = True) -> None:
    """Writes version, count, the entries and the checksum, as `write_atomic` does."""
    entries = list(lines)
    data = "".join(f"{line}\n" for line in (VERSION, len(entries), *entries)).encode()
    fs.write_atomic(path, data + f"{_checksum_line(data)}\n".encode(), sync_name=sync_name)


def _checksum_line(data: bytes) -> str:
    return f"{_CHECKSUM} {crc32c(data):08x}"


def read_lines(fs: FileSystem, path: str) -> list[str]:
    """Reads the entries; none if the file does not exist. Raises `CheckpointError`."""
    if not fs.exists(path):
        return []
    data = fs.read_bytes(path)
    try:
        *lines, rest = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(path, f"is not text: {error}") from error
    if rest or len(lines) < 2:
        raise CheckpointError(path, f"is cut off after {len(lines)} lines")
    version, count, *entries = lines
    if version == str(VERSION):
        _check(path, data, lines[-1])
        entries.pop()
    elif version != str(_VERSION_OF_KAFKA):
        if is_newer(version, VERSION):
            raise NewerCheckpointError(path, newer_format(version, VERSION))
        raise CheckpointError(path, f"has version {version!r}, not {VERSION}")
    if parse_number(path, count) != len(entries):
        raise CheckpointError(path, f"promises {count} entries and has {len(entries)}")
    return entries


def _check(path: str, data: bytes, last_line: str) -> None:
    """Raises `CheckpointError` unless the last line is the checksum of all before it."""
    expected = _checksum_line(data[: -len(last_line.encode()) - 1])
    if last_line != expected:
        raise CheckpointError(path, f"is damaged: it ends in {last_line!r}, not {expected!r}")


def split_line(path: str, line: str, field_count: int) -> list[str]:
    """The fields of an entry. Raises `CheckpointError` if there are more or fewer."""
    fields = line.split(" ")
    if len(fields) != field_count:
        raise CheckpointError(path, f"line {line!r} has {len(fields)} fields, not {field_count}")
    return fields


def parse_number(path: str, text: str) -> int:
    """Parses a decimal number >= 0. Raises `CheckpointError`."""
    if not (text.isascii() and text.isdigit()):
        raise CheckpointError(path, f"{text!r} is not a number")
    return int(text)
