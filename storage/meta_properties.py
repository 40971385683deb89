"""`meta.properties`: the broker and cluster that own a data directory, checked before it is opened."""

from __future__ import annotations

import uuid
from typing import Final

from echoless.storage import paths
from echoless.storage.file_system import FileSystem, StorageError
from echoless.storage.properties_file import (
    PropertiesError,
    encode_uuid,
    read_properties,
    write_properties,
)

_SEPARATOR: Final = "="
_VERSION: Final = "0"


class ForeignDirectoryError(StorageError):
    """The data directory belongs to a broker with another id."""


def claim_directory(fs: FileSystem, data_dir: str, broker_id: int, cluster_id: str | None) -> str:
    """Returns the cluster id of the broker's directory; makes a new one the broker's.

    `cluster_id` is for a new one (default: a random one). Raises `ForeignDirectoryError`.
    """
    path = paths.join(data_dir, paths.META_PROPERTIES)
    if not fs.exists(path):
        cluster_id = cluster_id or encode_uuid(uuid.uuid4())
        meta = {"version": _VERSION, "broker.id": str(broker_id), "cluster.id": cluster_id}
        write_properties(fs, path, meta, _SEPARATOR)
        return cluster_id
    meta = read_properties(fs, path, _SEPARATOR, ("broker.id", "cluster.id"))
    if meta["broker.id"] != str(broker_id):
        owner = meta["broker.id"]
        raise ForeignDirectoryError(path, f"belongs to broker {owner}, not {broker_id}")
    return meta["cluster.id"]


def read_cluster_id(fs: FileSystem, data_dir: str) -> str | None:
    """The cluster that the directory belongs to; None if it is new. Raises `StorageError`."""
    path = paths.join(data_dir.rstrip("/"), paths.META_PROPERTIES)
    if not fs.exists(path):
        return None
    return read_properties(fs, path, _SEPARATOR, ("cluster.id",))["cluster.id"]


def read_broker_id(fs: FileSystem, data_dir: str) -> int:
    """The broker that the directory belongs to. Raises `StorageError`, also if there is none."""
    path = paths.join(data_dir.rstrip("/"), paths.META_PROPERTIES)
    if not fs.exists(path):
        raise PropertiesError(path, "is missing: this is not a data directory")
    text = read_properties(fs, path, _SEPARATOR, ("broker.id",))["broker.id"]
    if not (text.isascii() and text.isdecimal()):
        raise PropertiesError(path, f"{text!r} is not a broker id")
    return int(text)


def has_partitions(fs: FileSystem, data_dir: str) -> bool:
    """Whether the directory holds any partition. Raises `StorageError`."""
    path = data_dir.rstrip("/")
    return any(
        paths.parse_partition_directory(name) and fs.is_directory(paths.join(path, name))
        for name in fs.list_directory(path)
    )
