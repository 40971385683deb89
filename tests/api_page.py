"""`docs/api.md`, written from the sources of the public names.

`python -m tests.api_page` prints the page, `--write` writes it; the prose before the first module stays. Signatures are
as in the source; a name without a docstring is an error.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path(__file__).parents[1] / "docs/api.md"
PUBLIC: Final = ("echoless", "echoless.spark", "echoless.testing")
_FIRST: Final = f"## `{PUBLIC[0]}`\n"
_LINE_MAX: Final = 100
_MADE_BY_US: Final = frozenset(
    {"Acknowledgements", "BlockingDelivery", "Columns", "FaultRule", "ReadyBatch", "RecordDelivery"}
)
"""Classes whose objects a caller gets from a function: how they are made may change."""
_FOR_OTHER_ROOMS: Final = frozenset(
    {
        *("Admin.connection", "Admin.headers", "Admin.url", "AsyncProducer.submit"),
        "AsyncProducer.check_session",
        *("CopierSettings.member", "Echoless.begin_test", "Mechanism.sends_secret"),
        *("ReadyBatch.body", "ReadyBatch.header", "ReadyBatch.records", "ReadyBatch.stamped"),
    }
)
"""Members that our own rooms use, and programs do not."""
_PAGE_NAME: Final = re.compile(r"`docs/([\w-]+\.md)`")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Entry(NamedTuple):
    """A public name, or a member of a public class."""

    form: str
    """How it is used: a signature, a field, the definition of an alias."""
    text: str
    """Its docstring; that of a member may be empty."""
    members: tuple[Entry, ...] = ()


def with_names(page: str) -> str:
    """The page, with everything from the first module on written anew."""
    prose, found, _ = page.partition(_FIRST)
    assert found, f"{PAGE.name} has no line {_FIRST}"
    return prose + "\n".join(map(_module, PUBLIC))


def imports_for_checkers(module: str) -> dict[str, str]:
    """Name -> module of what is imported under `TYPE_CHECKING`, which is what type checkers see."""
    (block,) = (
        node
        for node in _tree(module).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


# The page


def _module(module: str) -> str:
    public, homes = importlib.import_module(module), imports_for_checkers(module)
    entries = {name: _entry(getattr(public, name), name, homes[name]) for name in public.__all__}
    index = "".join(
        f"| [`{name}`](#{_heading(name).lower().replace(' ', '-')}) | {_first_sentence(entry.text)} |\n"
        for name, entry in entries.items()
    )
    sections = "\n".join(_section(name, entry) for name, entry in entries.items())
    whole = f"## `{module}`\n\n{inspect.getdoc(public)}\n\n| | |\n|---|---|\n{index}\n{sections}"
    return _PAGE_NAME.sub(r"[\1](\1)", whole)


def _section(name: str, entry: Entry) -> str:
    members = "".join(f"* `{one.form}`{_indented(one.text)}\n" for one in entry.members)
    section = f"### {_heading(name)}\n\n```python\n{entry.form}\n```\n\n{entry.text}\n"
    return f"{section}\n{members}" if members else section


def _heading(name: str) -> str:
    """A heading whose anchor differs from that of the class of this name."""
    return f"Function {name}" if name.islower() else name


def _indented(text: str) -> str:
    first, *others = text.splitlines() or [""]
    begun = f": {first}" if first else ""
    return "\n".join([begun, *(f"  {line}" if line else "" for line in others)])


def _first_sentence(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")


# One name


def _entry(value: object, name: str, home: str) -> Entry:
    for node, text in _documented(_tree(home).body):
        if name == _name_of(node):
            assert text, f"{home}: {name} is public and has no docstring"
            if isinstance(node, ast.ClassDef):
                assert isinstance(value, type)
                return _class_entry(node, text, value)
            return Entry(_wrapped(_form(node)), text)
    raise AssertionError(f"{home} does not define {name}")


def _class_entry(node: ast.ClassDef, text: str, value: type) -> Entry:
    body = {_name_of(one): (one, docstring) for one, docstring in _documented(node.body)}
    init, about_init = body.get("__init__", (None, ""))
    members = [
        Entry(_form(statement), docstring)
        for name, (statement, docstring) in body.items()
        if name
        and not name.startswith("_")
        and (docstring or not isinstance(statement, ast.AnnAssign))
        and not _is_of_another_library(name, value)
    ]
    if isinstance(init, ast.FunctionDef):
        members = [*_attributes(init), *members]
    members = [one for one in members if f"{node.name}.{_plain(one)}" not in _FOR_OTHER_ROOMS]
    whole = f"{text}\n\n{about_init}" if about_init and not issubclass(value, Exception) else text
    return Entry(_class_form(node, init, value), whole, tuple(members))


def _is_of_another_library(name: str, value: type) -> bool:
    """Whether a member fulfils what a base class of Spark, of Python asks for."""
    return any(
        name in vars(base) for base in value.__mro__ if not base.__module__.startswith("echoless")
    )


def _attributes(init: ast.FunctionDef) -> Iterator[Entry]:
    """Those that `__init__` sets, and documents."""
    for statement, docstring in _documented(init.body):
        target = _name_of(statement).strip("()")
        if docstring and target.startswith("self.") and "self._" not in target:
            yield Entry(target.replace("self.", ""), docstring)


def _plain(member: Entry) -> str:
    found = re.match(r"\w+", member.form)
    return found[0] if found else ""


def _class_form(node: ast.ClassDef, init: ast.stmt | None, value: type) -> str:
    bases = ", ".join(map(ast.unparse, node.bases))
    if node.name in _MADE_BY_US:
        return f"class {node.name}"
    if isinstance(init, ast.FunctionDef) and not issubclass(value, Exception):
        return _wrapped(f"{node.name}({_parameters(init)})")
    fields = [_form(one) for one in node.body if isinstance(one, ast.AnnAssign)]
    if fields:
        by_name = ["*"] if "kw_only" in "".join(map(ast.unparse, node.decorator_list)) else []
        return _wrapped(f"{node.name}({', '.join([*by_name, *fields])})")
    return f"class {node.name}({bases})" if bases else f"class {node.name}"


# Statements


def _documented(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement with its docstring, which stands in it or follows it."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | Function):
            yield node, ast.get_docstring(node) or ""
        elif isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            yield node, inspect.cleandoc(str(after.value.value))
        else:
            yield node, ""


def _name_of(node: ast.stmt) -> str:
    if isinstance(node, ast.ClassDef | Function):
        return node.name
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else ""


def _form(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):  # of `field`
        default = [one.value for one in node.value.keywords if one.arg == "default"]
        node = ast.AnnAssign(node.target, node.annotation, *default or [None], simple=1)
    if not isinstance(node, Function):
        return ast.unparse(node)
    returned = "None" if node.returns is None else ast.unparse(node.returns)
    decorators = {ast.unparse(one) for one in node.decorator_list}
    if "property" in decorators:
        return f"{node.name}: {returned}"
    call = f"{node.name}({_parameters(node)})"
    if "contextmanager" in decorators:
        return f"with {call} as {returned.removeprefix('Iterator[').removesuffix(']')}"
    return f"{'await ' if isinstance(node, ast.AsyncFunctionDef) else ''}{call} -> {returned}"


def _parameters(node: Function) -> str:
    text = ast.unparse(node.args).replace("=", " = ")
    return text.removeprefix("self").removeprefix("cls").removeprefix(", ")


def _wrapped(form: str) -> str:
    """A long signature, as the formatter divides it."""
    if len(form) <= _LINE_MAX or (not form.endswith(")") and " -> " not in form):
        return form
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "signature.pyi", "-"]
    done = subprocess.run(
        command, input=f"def {form}: ...", capture_output=True, text=True, check=True
    )
    return done.stdout.strip().removeprefix("def ").removesuffix(": ...")


class _Values(ast.NodeTransformer):
    """Puts the number or text in the place of a constant's name."""

    def __init__(self, constants: Mapping[str, object]) -> None:
        self._constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._constants.get(node.id)
        is_read = isinstance(node.ctx, ast.Load)
        return ast.Constant(value) if is_read and type(value) in {int, float, str} else node


def _tree(module: str) -> ast.Module:
    imported = importlib.import_module(module)
    assert imported.__file__ is not None
    tree = ast.parse(Path(imported.__file__).read_text(encoding="utf-8"))
    _Values(vars(imported)).visit(tree)
    return tree


if __name__ == "__main__":
    written = with_names(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(written, encoding="utf-8")
    else:
        sys.stdout.write(written)
