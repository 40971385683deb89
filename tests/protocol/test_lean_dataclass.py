"""The lean `dataclass` makes classes that behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol import lean_dataclass
from echoless.protocol.lean_dataclass import dataclass

MODULES: list[Any] = [dataclasses, lean_dataclass]
of_both = pytest.mark.parametrize("module", MODULES, ids=["standard", "lean"])


def frozen(module: Any) -> Any:
    @module.dataclass(slots=True, frozen=True, kw_only=True)
    class Values:
        """Fields with and without defaults."""

        name: str
        size: int = 3
        tags: list[int] = module.field(default_factory=list)
        secret: str = module.field(default="s", repr=False, metadata={"doc": "not shown"})

        @property
        def double(self) -> int:
            return 2 * self.size

    return Values


def mutable(module: Any) -> Any:
    @module.dataclass(slots=True)
    class Values:
        """Fields by position."""

        name: str
        size: int = 3
        tags: list[int] = module.field(default_factory=list)

    return Values


def written_out(module: Any) -> Any:
    @module.dataclass(slots=True)
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
    standard, lean = (outcome(kind(one), *given_arguments) for one in MODULES)
    assert standard == lean


@of_each_kind
@given(st.tuples(*[st.dictionaries(st.sampled_from(["name", "size"]), st.integers(0, 1))] * 2))
def test_instances_are_equal_if_their_fields_are(kind: Any, pair: Any) -> None:
    """So are their hashes, if the class is frozen; an instance of another class is never equal."""
    standard, lean = (
        [cls(**{"name": 0, **fields}) for fields in pair] for cls in map(kind, MODULES)
    )
    assert (standard[0] == standard[1]) is (lean[0] == lean[1])
    assert standard[0] != lean[0]


@of_both
def test_a_frozen_instance_cannot_be_changed(module: Any) -> None:
    """Neither by assignment nor by deletion; `replace` makes another."""
    values = frozen(module)(name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        values.size = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        del values.size
    assert dataclasses.replace(values, size=4).double == 8
    assert module.replace(values, size=4).double == 8
    assert values.double == 6


@of_both
def test_hashes(module: Any) -> None:
    """A frozen instance has one, a mutable one has none."""

    @module.dataclass(slots=True, frozen=True)
    class Frozen:
        """One field."""

        name: str

    assert len({Frozen("a"), Frozen("a"), Frozen("b")}) == 2
    with pytest.raises(TypeError):
        hash(mutable(module)("a"))


@of_both
@pytest.mark.parametrize("is_frozen", [False, True])
def test_instances_without_equality_are_themselves(module: Any, is_frozen: bool) -> None:
    """With `eq=False` two are never equal, and each can be hashed."""

    @module.dataclass(slots=True, frozen=is_frozen, eq=False)
    class Values:
        """One field."""

        name: str

    assert Values("a") != Values("a")
    assert len({Values("a"), Values("a")}) == 2


@of_both
def test_the_class_has_slots_and_describes_its_fields(module: Any) -> None:
    """No instance has a dict, and every field keeps its default and metadata."""
    cls = frozen(module)
    assert not hasattr(cls(name="a"), "__dict__")
    assert cls.__slots__ == ("name", "size", "tags", "secret")
    for fields in (dataclasses.fields, module.fields):
        assert [one.name for one in fields(cls)] == ["name", "size", "tags", "secret"]
        assert [one.type for one in fields(cls)] == ["str", "int", "list[int]", "str"]
        assert fields(cls(name="a"))[3].metadata == {"doc": "not shown"}
    assert (mutable(module).__match_args__, cls.__match_args__) == (("name", "size", "tags"), ())


@of_both
def test_a_class_that_inherits_has_the_fields_of_both(module: Any) -> None:
    """Those of its base come first, and it may give them other defaults."""

    @module.dataclass(slots=True, frozen=True, kw_only=True)
    class Values(frozen(module)):  # type: ignore[misc]
        """Two more, one of them known."""

        size: int = 4
        weight: int = 1

    values = Values(name="a")
    assert (values.size, values.weight, values.double) == (4, 1, 8)
    assert [one.name for one in module.fields(Values)] == [
        *("name", "size", "tags", "secret", "weight"),
    ]
    assert Values.__slots__ == ("weight",)
    assert dataclasses.asdict(values)["weight"] == 1


@of_both
def test_defaults_are_made_for_each_instance(module: Any) -> None:
    """A list that one instance fills stays empty in the next."""
    cls = mutable(module)
    cls("a").tags.append(1)
    assert cls("a").tags == []


@of_both
def test_methods_of_the_class_are_kept(module: Any) -> None:
    """A class that requests make has an `__init__` of its own."""
    values = written_out(module)("a")
    assert (values.name, repr(values)) == ("A", "mine")


def test_instances_can_be_copied_and_pickled() -> None:
    """A frozen one as well, whose fields cannot be set."""
    point = Point(1)
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
