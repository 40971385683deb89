"""Small files with a `name<separator>value` on each line, such as `meta.properties`.

Kafka writes `=` in `meta.properties`, `: ` in `partition.metadata`, and UUIDs as URL-safe base64
without padding. The last line is ours, and Kafka ignores it: `crc32c`, the checksum of all bytes before
that line. A file without it is an older one, or Kafka's.

Knows nothing of what the names mean.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping
from typing import Final

from echoless.protocol.checksum import crc32c
from echoless.storage.file_system import FileSystem, StorageError

_CHECKSUM: Final = "crc32c"


class PropertiesError(StorageError):
    """The file is damaged or incomplete; the message says how, and what helps."""

    def __init__(self, path: str, reason: str, remedy: str = "") -> None:
        super().__init__(path, f"{reason}. {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


def write_properties(
    fs: FileSystem, path: str, properties: Mapping[str, str], separator: str
) -> None:
    """Replaces the file, durably."""
    fs.write_atomic(path, _encode(properties, separator))


def write_properties_unsynced(
    fs: FileSystem, path: str, properties: Mapping[str, str], separator: str
) -> None:
    """Writes the file without a sync: a power failure may take it, or a part of it."""
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        file.append([_encode(properties, separator)])
    finally:
        file.close()


def _encode(properties: Mapping[str, str], separator: str) -> bytes:
    lines = (f"{name}{separator}{value}\n" for name, value in properties.items())
    data = "".join(lines).encode()
    return data + _checksum_line(data, separator)


def _checksum_line(data: bytes, separator: str) -> bytes:
    return f"{_CHECKSUM}{separator}{crc32c(data):08x}\n".encode()


def read_properties(
    fs: FileSystem, path: str, separator: str, required: tuple[str, ...]
) -> dict[str, str]:
    """Reads names and values; `#` begins a comment.

    Raises `PropertiesError` if a required name is missing, or if the file is damaged.
    """
    data = fs.read_bytes(path)
    _check(path, data, separator)
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise PropertiesError(path, f"is not text: {error}") from error
    properties = {}
    for line in lines:
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition(separator.strip())
            properties[name.strip()] = value.strip()
    for name in required:
        if name not in properties:
            raise PropertiesError(path, f"has no line {name!r}")
    return properties


def _check(path: str, data: bytes, separator: str) -> None:
    """Raises `PropertiesError` if the file is cut off, or does not match its checksum."""
    if not data.endswith(b"\n"):
        raise PropertiesError(path, "is cut off: its last line has no end")
    covered, found, _ = data.rpartition(_CHECKSUM.encode())
    if found and data[len(covered) :] != _checksum_line(covered, separator):
        raise PropertiesError(
            path,
            "its checksum does not match",
            f"Bring a copy back, or correct it by hand and remove its line {_CHECKSUM}",
        )


def encode_uuid(value: uuid.UUID) -> str:
    """Encodes the id in 22 characters, as Kafka writes topic ids and cluster ids."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(path: str, text: str) -> uuid.UUID:
    """Decodes what `encode_uuid` wrote. Raises `PropertiesError`."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (ValueError, binascii.Error) as error:
        raise PropertiesError(path, f"{text!r} is not a UUID of 22 characters") from error
