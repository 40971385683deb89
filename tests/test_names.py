"""One name, one thing: no two public classes of the product share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
ROOMS: Final = (
    *("broker", "cli", "client", "coordinators", "diagram"),
    *("pipeline", "protocol", "storage", "testkit"),
)


def test_no_two_public_classes_share_a_name() -> None:
    """A name in a message, a page or a search leads to one class, nested classes included."""
    homes = defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for name in public_classes(ast.parse(path.read_text(encoding="utf-8"))):
                homes[name].append(path.relative_to(ROOT).as_posix())
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_nested_and_conditional_classes_count() -> None:
    """Classes inside functions, and those that begin with an underscore, are private."""
    module = ast.parse(
        "class A:\n  class B: pass\n  class _C: pass\n"
        "if x:\n  class D: pass\nelse:\n  class E: pass\n"
        "def f():\n  class G: pass\n"
    )
    assert list(public_classes(module)) == ["A", "B", "D", "E"]


def public_classes(node: ast.AST) -> Iterable[str]:
    """Names of the public classes in a module or a class."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            if not child.name.startswith("_"):
                yield child.name
                yield from public_classes(child)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.expr):
            yield from public_classes(child)
