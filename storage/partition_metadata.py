"""`partition.metadata`: the id of the topic whose log a partition's directory holds."""

from __future__ import annotations

import uuid
from typing import Final

from echoless.storage import paths
from echoless.storage.file_system import FileSystem
from echoless.storage.properties_file import (
    PropertiesError,
    decode_uuid,
    encode_uuid,
    read_properties,
    write_properties,
    write_properties_unsynced,
)

_SEPARATOR: Final = ": "
_VERSION: Final = "0"
_OLDER_IDS_END: Final = "older_ids_end"


def read_topic_id(fs: FileSystem, directory: str) -> uuid.UUID:
    """Reads the topic's id. Raises `StorageError` if the file is missing or damaged."""
    path = paths.join(directory, paths.PARTITION_METADATA)
    if not fs.exists(path):
        raise PropertiesError(directory, f"there is no {paths.PARTITION_METADATA}")
    metadata = read_properties(fs, path, _SEPARATOR, ("version", "topic_id"))
    return decode_uuid(path, metadata["topic_id"])


def write_topic_id(fs: FileSystem, directory: str, topic_id: uuid.UUID) -> None:
    """Replaces the file, durably. Raises `StorageError`."""
    path = paths.join(directory, paths.PARTITION_METADATA)
    write_properties(fs, path, _metadata(topic_id), _SEPARATOR)


def read_older_ids_end(fs: FileSystem, directory: str) -> int:
    """Reads `LogConfig.older_ids_end` as of the making of the directory. Raises `StorageError`."""
    path = paths.join(directory, paths.PARTITION_METADATA)
    text = read_properties(fs, path, _SEPARATOR, ()).get(_OLDER_IDS_END, "0")
    if not (text.isascii() and text.isdecimal()):
        raise PropertiesError(path, f"{_OLDER_IDS_END} is {text!r}, not a number")
    return int(text)


def write_topic_id_unsynced(
    fs: FileSystem, directory: str, topic_id: uuid.UUID, older_ids_end: int = 0
) -> None:
    """Writes the file of a directory that is being created, without a sync. Raises `StorageError`."""
    path = paths.join(directory, paths.PARTITION_METADATA)
    metadata = _metadata(topic_id)
    if older_ids_end:
        metadata[_OLDER_IDS_END] = str(older_ids_end)
    write_properties_unsynced(fs, path, metadata, _SEPARATOR)


def _metadata(topic_id: uuid.UUID) -> dict[str, str]:
    return {"version": _VERSION, "topic_id": encode_uuid(topic_id)}
