"""The import direction of the rooms: never back, never sideways."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from echoless.broker.handlers.apis import APIS
from tests.import_doors import DOORS, imports_in_functions, modules_in_functions
from tests.import_graph import PACKAGE, by_room, circles, import_graph

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "protocol": {"protocol"},
    "storage": {"storage", "protocol"},
    "coordinators": {"coordinators", "protocol"},
    "diagram": {"diagram", "protocol"},
    "broker": {"broker", "coordinators", "storage", "diagram", "protocol"},
    "client": {"client", "protocol"},
    "pipeline": {"pipeline", "client", "diagram", "protocol"},
    "testkit": {"testkit", "client", "diagram", "protocol"},
    "cli": {
        *("cli", "testkit", "pipeline", "client", "broker"),
        *("coordinators", "storage", "diagram", "protocol"),
    },
}
PURE = (
    *(
        "protocol",
        "coordinators",
        "diagram",
        "broker/partitions/core",
        "client/lease.py",
        "client/sequencer.py",
    ),
    *("client/sequencer_actions.py", "client/sequenced_batch.py", "client/outstanding.py"),
)
NOT_PURE = {"asyncio", "socket", "os", "time", "random", "logging", "kazoo", "threading"}
ONLY_IN = {
    "kazoo": {"broker/tree/kazoo_"},
    "pyspark": {"pipeline"},
    "sqlite3": {"broker/tree/embedded.py"},
}
BROKER_FLOORS = (
    ("work_queue",),
    (
        *(
            "allocator",
            "clock",
            "descriptors",
            "doubt",
            "essential_task",
            "garbage",
            "without_openssl",
            "limited_log",
            "metrics",
        ),
        "threads",
    ),
    ("stop",),
    ("config",),
    ("log_lines", "network", "tree"),
    ("metadata",),
    ("authentication", "authorization", "quotas"),
    ("controller", "partitions"),
    ("decisions", "replication"),
    ("environment", "records"),
    ("cluster", "housekeeping"),
    ("state_topics",),
    ("groups", "transactions"),
    ("services",),
    ("handlers",),
    ("native",),
    ("faults",),
    ("admin", "broker"),
    ("assembly",),
    ("serve",),
    ("__main__",),
)
"""The rooms of the broker, and its files beside them, from the lowest floor to the highest."""


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Top-level names of every module that the file imports, lazily or not; of `echoless` those of the rooms."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(name.removeprefix(f"{PACKAGE}.").split(".")[0] for name in names)


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_lies_below_it(room):
    """protocol <- storage <- broker, protocol <- client <- pipeline, protocol <- diagram <- pipeline, cli above all."""
    for path in sources(room):
        forbidden = (imports(path) & MAY_IMPORT.keys()) - MAY_IMPORT[room]
        assert not forbidden, f"{path.relative_to(ROOT)} imports {sorted(forbidden)}"


def test_pure_rooms_do_no_input_or_output():
    """The cores are functions of their arguments: no clock, no loop, no disk, no randomness."""
    for place in PURE:
        path = ROOT / place
        for source in [path] if path.is_file() else sorted(path.rglob("*.py")):
            forbidden = imports(source) & NOT_PURE
            assert not forbidden, f"{source.relative_to(ROOT)} imports {sorted(forbidden)}"


@pytest.mark.parametrize("module", ONLY_IN)
def test_a_library_stays_behind_its_door(module):
    """A dependency that could be replaced one day is imported in one place."""
    for room in MAY_IMPORT:
        for path in sources(room):
            place = path.relative_to(ROOT).as_posix()
            if not any(place.startswith(door) for door in ONLY_IN[module]):
                assert module not in imports(path), f"{place} imports {module}"


def test_storage_knows_no_event_loop():
    """Storage is synchronous; the broker decides which thread runs it."""
    for path in sources("storage"):
        assert not imports(path) & {"asyncio", "socket"}, path


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_no_files_import_each_other_in_a_circle(room):
    """`python -m tests.import_graph` prints them; imports for type checking only count as well."""
    assert circles(import_graph(room)) == []


def test_the_broker_has_floors_and_each_imports_only_those_below():
    """A new room of the broker gets its floor in `BROKER_FLOORS`, and in docs/architecture.md."""
    floors = {f"broker.{name}": floor for floor, row in enumerate(BROKER_FLOORS) for name in row}
    rooms = by_room(import_graph("broker"))
    del rooms["broker"]
    assert rooms.keys() == floors.keys()
    upward = [
        f"{room} imports {imported}"
        for room, all_imported in rooms.items()
        for imported in sorted(all_imported)
        if floors[imported] >= floors[room]
    ]
    assert upward == []


def test_imports_stand_at_the_head_of_a_file_except_at_doors():
    """A door has its row, with the reason, in `tests/import_doors.py`."""
    found = imports_in_functions()
    assert {path: found[path] for path in found.keys() - DOORS.keys()} == {}
    assert DOORS.keys() - found.keys() == set(), "a door that nothing uses"


def test_imports_in_methods_and_nested_functions_are_found():
    """Those at the head, for type checking only, or in the body of a class are not meant."""
    source = """
import a
if TYPE_CHECKING:
    import b
class C:
    import c
    def f(self):
        from d.e import g
        async def h():
            import i, d.e
"""
    assert modules_in_functions(source) == ["d.e", "i"]


TESTED_IN_TRANSACTIONS = {
    *("add_partitions_to_txn", "add_offsets_to_txn", "end_txn"),
    *("describe_transactions", "list_transactions"),
}
"""APIs that say little alone: their tests are one file, `test_transactions.py`."""


def test_each_api_has_a_file_of_tests():
    """`tests/broker/handlers/` mirrors `broker/handlers/`: an API without tests is not complete."""
    apis = {api.name for api in APIS} - TESTED_IN_TRANSACTIONS
    tests = {path.stem for path in (ROOT / "tests/broker/handlers").glob("test_*.py")}
    assert len(apis) > 20
    assert {f"test_{api}" for api in apis} <= tests
    assert "test_transactions" in tests


def test_a_circle_is_found_wherever_it_is():
    """Two circles with a way between them, a file that imports itself through others, and one that does not."""
    graph = {
        "a": frozenset({"b"}),
        "b": frozenset({"a", "c"}),
        "c": frozenset({"d"}),
        "d": frozenset({"e"}),
        "e": frozenset({"c", "f"}),
        "f": frozenset(),
    }
    assert circles(graph) == [["a", "b"], ["c", "d", "e"]]
