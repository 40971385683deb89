"""`producer-id-checkpoint`: how far the broker on this data directory has seen the coordinator count.

It proves that there was a coordinator which had counted so far; an older copy of it would say less. Written
before the first id of a claimed block is handed out. The ids in the logs prove nothing, since a client
can make them up.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from echoless.storage import paths
from echoless.storage.file_system import FileSystem
from echoless.storage.properties_file import PropertiesError, read_properties, write_properties

_VERSION: Final = "0"
_SEPARATOR: Final = "="
_LAST_ID: Final = "last_claimed_id"
_MARK: Final = "mark"
NO_ID: Final = -1
NO_MARK: Final = 0


class SeenCounts(NamedTuple):
    """The highest counts that were seen."""

    last_id: int = NO_ID
    """The last producer id of the newest block that any broker is known to have claimed."""
    mark: int = NO_MARK
    """This broker's own mark in the coordinator's tree; a broker that stands alone has none."""


def write_seen_counts(fs: FileSystem, data_dir: str, seen: SeenCounts) -> None:
    """Replaces the file, durably; a block has to be known. Raises `StorageError`."""
    path = paths.join(data_dir, paths.PRODUCER_ID_CHECKPOINT)
    properties = {"version": _VERSION, _LAST_ID: str(seen.last_id)}
    if seen.mark != NO_MARK:
        properties[_MARK] = str(seen.mark)
    write_properties(fs, path, properties, _SEPARATOR)


def read_seen_counts(fs: FileSystem, data_dir: str) -> SeenCounts:
    """Reads the file; nothing was seen if there is none. Raises `PropertiesError`."""
    path = paths.join(data_dir, paths.PRODUCER_ID_CHECKPOINT)
    if not fs.exists(path):
        return SeenCounts()
    properties = read_properties(fs, path, _SEPARATOR, (_LAST_ID,))
    return SeenCounts(
        _count(path, properties[_LAST_ID], "a producer id"),
        _count(path, properties.get(_MARK, str(NO_MARK)), "a mark"),
    )


def _count(path: str, text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 2**63):
        raise PropertiesError(path, f"{text!r} is not {name}")
    return int(text)
