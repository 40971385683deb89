"""The imports between the files of `broker/`: by room, and every circle between files.

Imports of every kind count: at the top of a file, inside a function, and those for type checking only.
Run it with `python -m tests.import_graph`; `tests/test_layering.py` asserts what it prints.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.import_doors import DOORS, imports_in_functions

SOURCES: Final = Path(__file__).parent.parent / "src"
PACKAGE: Final = "echoless"

Graph = Mapping[str, frozenset[str]]
"""Module -> the modules that it imports."""


@functools.cache
def import_graph(room: str = "broker") -> Graph:
    """The modules of a room of `echoless`, and which of them each imports."""
    paths = {_module(path): path for path in sorted((SOURCES / PACKAGE / room).rglob("*.py"))}
    return {
        module: frozenset(_imports(path, paths.keys())) - {module} for module, path in paths.items()
    }


def room(module: str) -> str:
    """The package of the module, as `broker.records`; a module beside the packages is a room of its own."""
    return ".".join(module.split(".")[1:3])


def by_room(graph: Graph) -> dict[str, set[str]]:
    """Which rooms each room imports."""
    rooms: dict[str, set[str]] = {room(module): set() for module in graph}
    for module, imported in graph.items():
        rooms[room(module)] |= {room(one) for one in imported} - {room(module)}
    return rooms


def circles(graph: Graph) -> list[list[str]]:
    """Every set of two or more nodes that reach each other (Tarjan's components), sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        path.append(node)
        for successor in graph[node]:
            if successor not in index:
                visit(successor)
                low[node] = min(low[node], low[successor])
            elif successor in path:
                low[node] = min(low[node], index[successor])
        if low[node] == index[node]:
            position = path.index(node)
            if len(path) - position > 1:
                found.append(sorted(path[position:]))
            del path[position:]

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(found)


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, modules: Iterable[str]) -> Iterable[str]:
    known = set(modules)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & known
            if node.module in known and not names <= known:
                yield node.module


def main() -> int:
    """Prints the doors and the graph; returns 1 if there is a circle."""
    for path, modules in imports_in_functions().items():
        sys.stdout.write(f"door {path} ({DOORS.get(path, 'not listed')}): {', '.join(modules)}\n")
    graph = import_graph()
    for name, imported in sorted(by_room(graph).items()):
        sys.stdout.write(f"{name}: {', '.join(sorted(imported)) or '-'}\n")
    found = circles(graph)
    for one in found:
        sys.stdout.write(f"circle of {len(one)}: {', '.join(one)}\n")
    sys.stdout.write(f"{len(graph)} files, {len(found)} circles\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
