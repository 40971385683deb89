"""CRC-32C in hardware: crc32c's extension module, without the package around it.

Importing the package looks up its own version through `importlib.metadata`, which costs 40 ms and 3
MB at every start of the broker. The extension needs none of that; if it is not found under its
name, the package is imported as usual.
"""

from __future__ import annotations

import importlib
import importlib.util
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Protocol, cast


def _extension() -> ModuleType:
    package = importlib.util.find_spec("crc32c")  # finds the package without running it
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", folders) if folders is not None else None
    if spec is None or spec.loader is None:
        return importlib.import_module("crc32c")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Checksum(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, crc: int = 0, /) -> int: ...


crc32c = cast("_Checksum", _extension().crc32c)
"""The CRC-32C of a buffer, continuing from `crc`, as an unsigned 32-bit integer."""
