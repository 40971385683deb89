"""The lean `NamedTuple` makes classes that behave as those of the standard library."""

from __future__ import annotations

import pickle
import typing
from typing import Any

import pytest

from protocol import lean_named_tuple

BASES = [typing.NamedTuple, lean_named_tuple.NamedTuple]
of_both = pytest.mark.parametrize("base", BASES, ids=["standard", "lean"])


def make(base: Any) -> Any:
    class Values(base):
        """Two fields, one of them with a default."""

        name: str
        size: Unknown = 3  # type: ignore[name-defined]  # noqa: F821 - annotations are never evaluated
        """The meaning of a field."""

        @property
        def double(self) -> int:
            return 2 * self.size

        @classmethod
        def of(cls, name: str) -> Any:
            return cls(name, 5)

        def __str__(self) -> str:
            return f"{self.name} of {self.size}"

    return Values


class Point(lean_named_tuple.NamedTuple):
    x: int
    y: int = 0


@of_both
def test_fields_and_methods(base: Any) -> None:
    """An instance is a tuple with names, defaults and the methods of its class."""
    cls = make(base)
    values = cls("a")
    assert (values, values.name, values.size, values.double) == (("a", 3), "a", 3, 6)
    assert (str(values), repr(values)) == ("a of 3", "Values(name='a', size=3)")
    assert values._replace(size=4) == cls(name="a", size=4) == ("a", 4)
    assert (cls.of("b"), cls._fields, cls._field_defaults) == (
        ("b", 5),
        ("name", "size"),
        {"size": 3},
    )
    assert (cls.__doc__, cls.__module__) == ("Two fields, one of them with a default.", __name__)
    assert cls.__qualname__ == "make.<locals>.Values"
    assert not hasattr(values, "__dict__")


@of_both
def test_wrong_arguments_and_changes_are_refused(base: Any) -> None:
    """A field too few, too many or unknown; an assignment."""
    cls = make(base)
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"other": 2}), ((1,), {"name": 2})):
        with pytest.raises(TypeError):
            cls(*args, **kwargs)
    with pytest.raises(AttributeError):
        cls("a").name = "b"


@of_both
def test_a_class_without_fields(base: Any) -> None:
    """Its instances are empty tuples, and still of that class."""

    class Nothing(base):
        """No fields."""

    assert (Nothing(), type(Nothing()).__name__) == ((), "Nothing")


def test_instances_can_be_pickled() -> None:
    """By the name of their class, as others."""
    assert pickle.loads(pickle.dumps(Point(1))) == Point(1, 0)
    assert type(pickle.loads(pickle.dumps(Point(1)))) is Point
