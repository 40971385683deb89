"""`dataclass` without compiling methods, for the modules that a start loads.

`dataclasses.dataclass` writes the source of up to seven methods for every class and compiles them: 0.4 ms, 1.3 if
the class is frozen, and a start has thirty of them. This one leaves the fields and slots to it, and adds the same
methods as closures (0.07 ms). Making an instance takes two or three times as long, so a class that requests make
has an `__init__` of its own. Type checkers see `dataclasses.dataclass`, and `dataclasses.replace` and `fields`
work. `tests/protocol/test_lean_dataclass.py` compares the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_Fields = Sequence[dataclasses.Field[Any]]


def _dataclass(
    *, slots: bool, frozen: bool = False, kw_only: bool = False, eq: bool = True
) -> Callable[[type[Any]], type[Any]]:
    """The decorator. A method that the class itself defines is kept."""
    declared: Callable[[type[Any]], type[Any]] = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
    )

    def decorate(undeclared: type[Any]) -> type[Any]:
        cls = declared(undeclared)
        fields = dataclasses.fields(cls)
        methods = _methods_of_values(fields, frozen=frozen, eq=eq)
        methods |= {"__init__": _init(cls.__qualname__, fields), "__repr__": _repr(fields)}
        for name, method in methods.items():
            if name not in cls.__dict__:
                setattr(cls, name, method)
        return cls

    return decorate


def _init(title: str, fields: _Fields) -> Callable[..., None]:
    names = {field.name for field in fields}
    positional = [field.name for field in fields if not field.kw_only]
    missing = dataclasses.MISSING
    defaults = {one.name: one.default for one in fields if one.default is not missing}
    factories = [
        (one.name, one.default_factory) for one in fields if one.default_factory is not missing
    ]
    set_field = object.__setattr__  # even if the class refuses changes

    def init(self: object, *args: object, **kwargs: object) -> None:
        values = {**defaults, **kwargs}
        if args:
            by_position = dict(zip(positional, args, strict=False))
            if len(by_position) < len(args) or by_position.keys() & kwargs.keys():
                raise TypeError(f"{title} takes {positional} by position, and each of them once")
            values |= by_position
        for name, make in factories:
            if name not in values:
                values[name] = make()
        if values.keys() != names:
            lacking, unknown = sorted(names - values.keys()), sorted(values.keys() - names)
            raise TypeError(f"{title} needs {lacking} and has no {unknown}")
        for name, value in values.items():
            set_field(self, name, value)

    return init


def _repr(fields: _Fields) -> Callable[[object], str]:
    names = [field.name for field in fields if field.repr]

    @recursive_repr()
    def show(self: object) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({shown})"

    return show


def _methods_of_values(fields: _Fields, *, frozen: bool, eq: bool) -> dict[str, Any]:
    """Two values of a class are equal if their fields are; a frozen one can be hashed, too."""
    names = [field.name for field in fields]
    values = attrgetter(*names)

    def equals(self: object, other: object) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def hash_of(self: object) -> int:
        return hash(values(self))

    def reduce(self: object) -> tuple[Callable[[], object], tuple[()]]:
        return partial(type(self), **{name: getattr(self, name) for name in names}), ()

    def refuse_change(self: object, name: str, *_value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot change field {name!r} of {self!r}")

    methods: dict[str, Any] = {}
    if eq:
        methods |= {"__eq__": equals, "__hash__": hash_of if frozen else None}
    if frozen:
        methods |= {"__setattr__": refuse_change, "__delattr__": refuse_change}
        methods["__reduce__"] = reduce
    return methods


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass
