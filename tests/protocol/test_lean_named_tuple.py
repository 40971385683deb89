"""The lean `NamedTuple` makes classes that behave as those of the standard library."""

from __future__ import annotations

import copy
import pickle
import types
import typing
from typing import Any

import pytest

from echoless.protocol import lean_named_tuple

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
    assert (values._asdict(), cls._make(["c", 1])) == ({"name": "a", "size": 3}, ("c", 1))
    assert (cls.__match_args__, cls.size.__doc__) == (
        ("name", "size"),
        "Alias for field number 1",
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
    with pytest.raises(TypeError):
        cls._make(["a", 1, 2])
    with pytest.raises(ValueError, match="other"):
        cls("a")._replace(other=1)
    with pytest.raises(AttributeError):
        cls("a").name = "b"


@of_both
def test_a_class_without_fields(base: Any) -> None:
    """Its instances are empty tuples, and still of that class."""

    class Nothing(base):
        """No fields."""

    assert (Nothing(), type(Nothing()).__name__) == ((), "Nothing")


@of_both
@pytest.mark.parametrize("count", range(1, 13))
def test_any_number_of_fields(base: Any, count: int) -> None:
    """By position, by name and by default; classes with more than eight fields compile theirs."""
    names = [f"field_{index}" for index in range(count)]
    namespace = {"__annotations__": dict.fromkeys(names, "int"), "__module__": __name__}
    namespace |= {"__qualname__": "Values", names[-1]: 7}
    cls = types.new_class("Values", (base,), exec_body=lambda body: body.update(namespace))
    values = cls(*range(count - 1))
    assert values == cls(**dict(zip(names, range(count - 1), strict=False)))
    assert [getattr(values, name) for name in names] == [*range(count - 1), 7]
    assert cls(*range(count)) == (*range(count),)


def test_instances_can_be_copied_and_pickled() -> None:
    """By the name of their class, as others."""
    assert copy.copy(Point(1)) == copy.deepcopy(Point(1)) == Point(1)
    assert pickle.loads(pickle.dumps(Point(1))) == Point(1, 0)
    assert type(pickle.loads(pickle.dumps(Point(1)))) is Point
