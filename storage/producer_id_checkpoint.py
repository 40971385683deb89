"""`producer-id-checkpoint`: the highest producer id that a broker on this data directory has claimed.

It proves how far the coordinator had counted; an older copy of the coordinator would say less. Written
before the first id of a claimed block is handed out. The ids in the logs prove nothing, since a client
can make them up.
"""

from __future__ import annotations

from typing import Final

from echoless.storage import paths
from echoless.storage.file_system import FileSystem
from echoless.storage.properties_file import PropertiesError, read_properties, write_properties

_VERSION: Final = "0"
_SEPARATOR: Final = "="
_LAST_ID: Final = "last_claimed_id"
NO_ID: Final = -1


def write_last_claimed_id(fs: FileSystem, data_dir: str, producer_id: int) -> None:
    """Replaces the file, durably. Raises `StorageError`."""
    path = paths.join(data_dir, paths.PRODUCER_ID_CHECKPOINT)
    write_properties(fs, path, {"version": _VERSION, _LAST_ID: str(producer_id)}, _SEPARATOR)


def read_last_claimed_id(fs: FileSystem, data_dir: str) -> int:
    """Reads the file; `NO_ID` if there is none. Raises `PropertiesError`."""
    path = paths.join(data_dir, paths.PRODUCER_ID_CHECKPOINT)
    if not fs.exists(path):
        return NO_ID
    text = read_properties(fs, path, _SEPARATOR, (_LAST_ID,))[_LAST_ID]
    if not (text.isascii() and text.isdecimal() and int(text) < 2**63):
        raise PropertiesError(path, f"{text!r} is not a producer id")
    return int(text)
