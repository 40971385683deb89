"""The compiled modules of a start, in one file.

Python looks for each module in its directory, looks at its source, and opens, reads and checks its compiled file: for 250
modules of our own a tenth of a start. `python -m echoless.broker.start_code` gathers their compiled files in one, beside
those of the broker, and a finder before Python's own takes them from there until the ready line. Each counts as Python would count it:
what is older than its source is left to the usual import, and so is everything if the file is missing or was made
by another Python or in another place. It only saves time.

`make` and the image write it once the tree is compiled. Knows nothing of the broker but what its start imports.
"""

# Paths are plain strings; pathlib costs time on the start path and adds nothing here.
# ruff: noqa: PTH100, PTH105, PTH116, PTH120, PTH123

from __future__ import annotations

import contextlib
import marshal
import mmap
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType
from typing import Final

_ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATH: Final = f"{_ROOT}/broker/__pycache__/start.{sys.implementation.cache_tag}.code"
_MADE_FOR: Final = (sys.hexversion, _ROOT)
_ROOMS: Final = ("broker", "coordinators", "protocol", "storage")
_IMPORTED: Final = (
    *(
        "echoless.broker.__main__",
        "echoless.broker.serve",
        "echoless.broker.assembly",
        "echoless.broker.environment",
    ),
    *("echoless.broker.admin.server", "echoless.broker.tree.embedded"),
)
"""The modules that a broker which stands alone imports for its first record; each imports many others."""
_SIZE_BYTES: Final = 4
"""The first bytes of the file hold the size of its index."""
_HEAD_BYTES: Final = 16
"""The size of what a compiled file has before its code: flags, and the time and size of its source."""
_UNCHECKED: Final = 1
"""The flags of a compiled file that counts whatever became of its source."""
_Place = tuple[str, int, int]
"""The path of a source, and where among the compiled files its own begins and ends."""


def use_start_code() -> None:
    """Has modules come from the file, if it can be used. Call it before the broker's modules are imported."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError), open(PATH, "rb") as file:
        code = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        start = _SIZE_BYTES + int.from_bytes(code[:_SIZE_BYTES], "little")
        made_for, size, places = marshal.loads(code[_SIZE_BYTES:start])  # noqa: S302 - as much ours as what Python compiled
        if made_for == _MADE_FOR and len(code) == start + size:
            sys.meta_path = [StartFinder(code, start, places), *sys.meta_path]


def end_start_code() -> None:
    """Gives the file back. What is imported later is found as usual."""
    # Another list: a thread may be going through this one. The file is closed when nothing refers to the finder.
    sys.meta_path = [one for one in sys.meta_path if not isinstance(one, StartFinder)]


class StartFinder:
    """Finds the modules of the file."""

    def __init__(self, code: mmap.mmap, start: int, places: Mapping[str, _Place]) -> None:
        """`start` is where the index ends, and the first compiled file begins."""
        self._code = code
        self._start = start
        self._places = places

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> ModuleSpec | None:
        """None for a module that Python is to find itself."""
        place = self._places.get(name)
        if place is None:
            return None
        path, begin, end = place
        compiled = self._code[self._start + begin : self._start + end]
        if not _is_current(path, compiled):
            return None
        is_package = path.endswith("/__init__.py")
        loader = _StartLoader(name, path, compiled)
        spec = ModuleSpec(name, loader, origin=path, is_package=is_package)
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(path))
        return spec


class _StartLoader(SourceFileLoader):
    """Python's own, but for the code, which is at hand; it is asked for once."""

    def __init__(self, name: str, path: str, compiled: bytes) -> None:
        super().__init__(name, path)
        self._compiled: bytes | None = compiled

    def get_code(self, fullname: str) -> CodeType | None:
        compiled, self._compiled = self._compiled, None
        if compiled is None:
            return super().get_code(fullname)
        code: CodeType = marshal.loads(memoryview(compiled)[_HEAD_BYTES:])  # noqa: S302 - see above
        return code


def _is_current(path: str, compiled: bytes) -> bool:
    """Whether Python would take the compiled file for the source."""
    if int.from_bytes(compiled[4:8], "little") == _UNCHECKED:
        return True
    try:
        source = os.stat(path)
    except OSError:
        return False
    said = int.from_bytes(compiled[8:12], "little"), int.from_bytes(compiled[12:16], "little")
    return (int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF) == said


def write_start_code() -> int:
    """Imports what a start does, and writes the file; returns how many modules are in it."""
    for name in _IMPORTED:
        import_module(name)
    places: dict[str, _Place] = {}
    code = b""
    for name, path, compiled in _compiled_files():
        if _is_current(path, compiled):
            places[name] = path, len(code), len(code) + len(compiled)
            code += compiled
    _write(places, code)
    return len(places)


def _compiled_files() -> list[tuple[str, str, bytes]]:
    """The modules of the broker that are imported: name, source and compiled file."""
    found = []
    for name in sorted(name for name in sys.modules if name.split(".")[0] in _ROOMS):
        spec = sys.modules[name].__spec__
        if spec is not None and spec.origin and spec.cached:
            with contextlib.suppress(FileNotFoundError), open(spec.cached, "rb") as file:
                found.append((name, spec.origin, file.read()))
    return found


def _write(places: dict[str, _Place], code: bytes) -> None:
    """Replaces the file as a whole: brokers may start meanwhile."""
    index = marshal.dumps((_MADE_FOR, len(code), places))
    new = f"{PATH}.{os.getpid()}"
    with open(new, "wb") as file:
        file.write(len(index).to_bytes(_SIZE_BYTES, "little") + index + code)
        os.fsync(file.fileno())
    os.replace(new, PATH)


if __name__ == "__main__":
    print(f"{write_start_code()} modules in {PATH}")  # noqa: T201 - a step of a build
