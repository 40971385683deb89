"""The typed requests of the handlers against kio's classes of every version that is served."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from echoless.broker import handlers
from echoless.broker.handlers import find_coordinator, list_offsets
from echoless.protocol.registry import Api
from echoless.protocol.typed_requests import typed
from tests.support.kio_requests import smallest_request

FILES = [
    path
    for path in sorted(Path(handlers.__path__[0]).glob("*.py"))
    if "\nAPI = declared(" in path.read_text()
]
MODULES = [importlib.import_module(f"echoless.broker.handlers.{path.stem}") for path in FILES]
TYPED = [
    (module, cls)
    for module in MODULES
    for name, cls in vars(module).items()
    if name.endswith("Request") and getattr(cls, "__module__", None) == module.__name__
]


def served(api: Api) -> list[Any]:
    """A request of each version, with one element in each array."""
    versions = range(api.version_min, api.version_max + 1)
    return [smallest_request(api.name, version, elements=1) for version in versions]


def check(cls: Any, entities: list[Any]) -> None:
    """Every field is kio's, and a version that lacks one gives the default."""
    known = [{field.name for field in dataclasses.fields(entity)} for entity in entities]
    assert set(cls._fields) <= set.union(*known)
    for entity, names in zip(entities, known, strict=True):
        read = typed(cls, entity)
        for name, value in zip(cls._fields, read, strict=True):
            assert value == (getattr(entity, name) if name in names else cls._field_defaults[name])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_handler_asks_an_entity_for_a_field(path: Path) -> None:
    """A field that not every version has is read through a typed request."""
    assert "getattr(" not in path.read_text()


@pytest.mark.parametrize(("module", "cls"), TYPED, ids=[cls.__name__ for _, cls in TYPED])
def test_each_version_is_read(module: Any, cls: Any) -> None:
    """A misspelt field would have its default for ever."""
    check(cls, served(module.API))


def test_rows_of_each_version_are_read() -> None:
    """Rows of arrays have classes of their own."""
    check(
        list_offsets.WantedOffset,
        [one.topics[0].partitions[0] for one in served(list_offsets.API)],
    )


def test_a_field_that_a_version_lacks_needs_a_default() -> None:
    """The error names the class of kio and the field."""

    class Wrong(NamedTuple):
        key_type: int

    oldest, *_ = served(find_coordinator.API)
    with pytest.raises(TypeError, match=r"find_coordinator\.v0\..* has no key_type; Wrong"):
        typed(Wrong, oldest)
