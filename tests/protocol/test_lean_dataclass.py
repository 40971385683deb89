"""The lean `dataclass` makes classes that behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.lean_dataclass import dataclass

DECORATORS = [dataclasses.dataclass, dataclass]
of_both = pytest.mark.parametrize("decorator", DECORATORS, ids=["standard", "lean"])


def frozen(decorator: Any) -> Any:
    @decorator(slots=True, frozen=True, kw_only=True)
    class Values:
        """Fields with and without defaults."""

        name: str
        size: int = 3
        tags: list[int] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False, metadata={"doc": "not shown"})

        @property
        def double(self) -> int:
            return 2 * self.size

    return Values


def mutable(decorator: Any) -> Any:
    @decorator(slots=True)
    class Values:
        """Fields by position."""

        name: str
        size: int = 3
        tags: list[int] = dataclasses.field(default_factory=list)

    return Values


def written_out(decorator: Any) -> Any:
    @decorator(slots=True)
    class Values:
        """Methods of its own."""

        name: str

        def __init__(self, name: str) -> None:
            self.name = name.upper()

        def __repr__(self) -> str:
            return "mine"

    return Values


@dataclass(slots=True, frozen=True)
class Point:
    """Importable, as pickle needs it."""

    x: int
    y: int = 0


KINDS = [frozen, mutable]
of_each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
names = st.sampled_from(["name", "size", "tags", "secret", "other"])
arguments = st.tuples(
    st.lists(st.integers(0, 2), max_size=4), st.dictionaries(names, st.integers(0, 2))
)


def outcome(cls: Any, args: list[int], kwargs: dict[str, int]) -> Any:
    """The fields of the instance, or the kind of error."""
    try:
        made = cls(*args, **kwargs)
    except TypeError:
        return TypeError
    return dataclasses.asdict(made), repr(made).rpartition(".")[2]


@of_each_kind
@given(arguments)
def test_any_arguments_give_the_same_instance_or_error(
    kind: Any, given_arguments: tuple[list[int], dict[str, int]]
) -> None:
    """By position, by name, twice, unknown, missing: fields and `repr` agree."""
    standard, lean = (outcome(kind(one), *given_arguments) for one in DECORATORS)
    assert standard == lean


@of_each_kind
@given(st.tuples(*[st.dictionaries(st.sampled_from(["name", "size"]), st.integers(0, 1))] * 2))
def test_instances_are_equal_if_their_fields_are(kind: Any, pair: Any) -> None:
    """So are their hashes, if the class is frozen; an instance of another class is never equal."""
    standard, lean = (
        [cls(**{"name": 0, **fields}) for fields in pair] for cls in map(kind, DECORATORS)
    )
    assert (standard[0] == standard[1]) is (lean[0] == lean[1])
    assert standard[0] != lean[0]


@of_both
def test_a_frozen_instance_cannot_be_changed(decorator: Any) -> None:
    """Neither by assignment nor by deletion; `replace` makes another."""
    values = frozen(decorator)(name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        values.size = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        del values.size
    assert dataclasses.replace(values, size=4).double == 8
    assert values.double == 6


@of_both
def test_hashes(decorator: Any) -> None:
    """A frozen instance has one, a mutable one has none."""

    @decorator(slots=True, frozen=True)
    class Frozen:
        """One field."""

        name: str

    assert len({Frozen("a"), Frozen("a"), Frozen("b")}) == 2
    with pytest.raises(TypeError):
        hash(mutable(decorator)("a"))


@of_both
@pytest.mark.parametrize("is_frozen", [False, True])
def test_instances_without_equality_are_themselves(decorator: Any, is_frozen: bool) -> None:
    """With `eq=False` two are never equal, and each can be hashed."""

    @decorator(slots=True, frozen=is_frozen, eq=False)
    class Values:
        """One field."""

        name: str

    assert Values("a") != Values("a")
    assert len({Values("a"), Values("a")}) == 2


@of_both
def test_the_class_has_slots_and_describes_its_fields(decorator: Any) -> None:
    """No instance has a dict, and every field keeps its default and metadata."""
    cls = frozen(decorator)
    assert not hasattr(cls(name="a"), "__dict__")
    assert [one.name for one in dataclasses.fields(cls)] == ["name", "size", "tags", "secret"]
    assert dataclasses.fields(cls)[3].metadata == {"doc": "not shown"}
    assert (mutable(decorator).__match_args__, cls.__match_args__) == (("name", "size", "tags"), ())


@of_both
def test_defaults_are_made_for_each_instance(decorator: Any) -> None:
    """A list that one instance fills stays empty in the next."""
    cls = mutable(decorator)
    cls("a").tags.append(1)
    assert cls("a").tags == []


@of_both
def test_methods_of_the_class_are_kept(decorator: Any) -> None:
    """A class that requests make has an `__init__` of its own."""
    values = written_out(decorator)("a")
    assert (values.name, repr(values)) == ("A", "mine")


def test_instances_can_be_copied_and_pickled() -> None:
    """A frozen one as well, whose fields cannot be set."""
    point = Point(1)
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
