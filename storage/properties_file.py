"""Small files of one `name<separator>value` per line: `meta.properties` and `partition.metadata`.

Kafka writes the first with `=`, the second with `: `, and UUIDs as URL-safe base64 without padding.
Called by `log_directory.py`. Knows nothing of what the names mean.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping

from storage.file_system import FileSystem, StorageError


class PropertiesError(StorageError):
    """The file is damaged or lacks something; the message says what."""


def write_properties(
    fs: FileSystem, path: str, properties: Mapping[str, str], separator: str
) -> None:
    """Replaces the file, durably."""
    lines = (f"{name}{separator}{value}\n" for name, value in properties.items())
    fs.write_atomic(path, "".join(lines).encode())


def read_properties(
    fs: FileSystem, path: str, separator: str, required: tuple[str, ...]
) -> dict[str, str]:
    """Names and values; `#` begins a comment. Raises `PropertiesError` where one is missing."""
    try:
        lines = fs.read_bytes(path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise PropertiesError(path, f"is not text: {error}") from error
    properties = {}
    for line in lines:
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition(separator.strip())
            properties[name.strip()] = value.strip()
    for name in required:
        if name not in properties:
            raise PropertiesError(path, f"says nothing of {name!r}")
    return properties


def encode_uuid(value: uuid.UUID) -> str:
    """22 characters, as Kafka writes topic ids and cluster ids."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(path: str, text: str) -> uuid.UUID:
    """The reverse of `encode_uuid`. Raises `PropertiesError`."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (ValueError, binascii.Error) as error:
        raise PropertiesError(path, f"{text!r} is not a UUID of 22 characters") from error
