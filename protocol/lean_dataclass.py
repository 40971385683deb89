"""`dataclass` without compiling methods, for the modules that a start loads.

`dataclasses.dataclass` writes the source of up to seven methods for every class and compiles them: 0.4 ms, 1.3 if
the class is frozen, and a start has fifty of them. This one adds the same methods as closures (0.03 ms), and makes
do without the standard module, which would load `inspect`. Making an instance takes two or three times as long, so a
class that requests make has an `__init__` of its own.

Type checkers see the standard names. `dataclasses.replace`, `fields` and `asdict` work on these classes too
(`_StandardFields`), but a class takes its `field` from here, and has slots. `tests/protocol/test_lean_dataclass.py`
compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

from echoless.protocol.lean_named_tuple import NamedTuple

__all__ = ["dataclass", "field", "fields", "replace"]

_MISSING: Final = object()
_FIELDS: Final = "__lean_fields__"
_NO_METADATA: Final[Mapping[str, Any]] = {}


class _Field(NamedTuple):
    """One field."""

    default: Any = _MISSING
    default_factory: Any = _MISSING
    repr: bool = True
    metadata: Mapping[str, Any] = _NO_METADATA
    # From here on, what is known once its class is.
    name: str = ""
    type: Any = None
    kw_only: bool = False


_DECLARED: Final = 4
"""How many of them `field` says."""


def _field(
    *,
    default: object = _MISSING,
    default_factory: object = _MISSING,
    repr: bool = True,  # noqa: A002 - the name that the standard library gave it
    metadata: Mapping[str, Any] = _NO_METADATA,
) -> _Field:
    """Declares a field that needs more than a default."""
    return _Field(default, default_factory, repr, metadata)


def _fields(of: Any) -> Sequence[_Field]:
    """The fields of a class or an instance."""
    found: Sequence[_Field] = getattr(of, _FIELDS)
    return found


def _replace(instance: Any, /, **changes: object) -> Any:
    """Another instance of the class, with these changes."""
    kept = {one.name: getattr(instance, one.name) for one in _fields(instance)}
    return type(instance)(**kept | changes)


def _dataclass(
    *, slots: bool, frozen: bool = False, kw_only: bool = False, eq: bool = True
) -> Callable[[type[Any]], type[Any]]:
    """The decorator. A method that the class itself defines is kept."""
    assert slots, "a lean dataclass has slots"

    def decorate(undeclared: type[Any]) -> type[Any]:
        own = _own_fields(undeclared, kw_only=kw_only)
        inherited = {one.name: one for one in getattr(undeclared, _FIELDS, ())}
        fields = tuple((inherited | {one.name: one for one in own}).values())
        namespace = {
            "__match_args__": tuple(one.name for one in fields if not one.kw_only),
            **_methods_of_values(fields, frozen=frozen, eq=eq),
            "__init__": _init(undeclared.__qualname__, fields),
            "__repr__": _repr,
            **_without_defaults(undeclared, fields),
            "__qualname__": undeclared.__qualname__,
            "__slots__": tuple(one.name for one in own if one.name not in inherited),
            "__dataclass_fields__": _StandardFields(fields),
            _FIELDS: fields,
        }
        cls: type[Any] = type(undeclared.__name__, undeclared.__bases__, namespace)
        return cls

    return decorate


def _own_fields(undeclared: type[Any], *, kw_only: bool) -> list[_Field]:
    found, members = [], vars(undeclared)
    for name, kind in members.get("__annotations__", {}).items():
        value = members.get(name, _MISSING)
        assert type(value).__module__ != "dataclasses", "take `field` from this module"
        one = value if type(value) is _Field else _Field(value)
        found.append(_Field(*one[:_DECLARED], name, kind, kw_only))
    return found


def _without_defaults(undeclared: type[Any], fields: Sequence[_Field]) -> dict[str, Any]:
    """The members of the class, but for the fields, which become slots."""
    names = {one.name for one in fields} | {"__dict__", "__weakref__"}
    return {name: value for name, value in vars(undeclared).items() if name not in names}


class _StandardFields:
    """`__dataclass_fields__` of a class, made by the standard library when its functions ask for it."""

    def __init__(self, fields: Sequence[_Field]) -> None:
        self._fields = fields
        self._made: Mapping[str, Any] | None = None

    def __get__(self, instance: object, owner: object) -> Mapping[str, Any]:
        if self._made is None:
            import dataclasses  # noqa: PLC0415 - see above

            declared = [(one.name, one.type, _standard(one)) for one in self._fields]
            made: Any = dataclasses.make_dataclass("Standard", declared)
            self._made = made.__dataclass_fields__
        return self._made


def _standard(one: _Field) -> Any:
    import dataclasses  # noqa: PLC0415 - see above

    given = {"default": one.default, "default_factory": one.default_factory}
    known: Any = {name: value for name, value in given.items() if value is not _MISSING}
    metadata = one.metadata or None
    return dataclasses.field(**known, repr=one.repr, metadata=metadata, kw_only=one.kw_only)


def _init(title: str, fields: Sequence[_Field]) -> Callable[..., None]:
    names = {field.name for field in fields}
    positional = [field.name for field in fields if not field.kw_only]
    defaults = {one.name: one.default for one in fields if one.default is not _MISSING}
    factories = [
        (one.name, one.default_factory) for one in fields if one.default_factory is not _MISSING
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


@recursive_repr()
def _repr(self: object) -> str:
    names = [one.name for one in _fields(self) if one.repr]
    shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
    return f"{type(self).__qualname__}({shown})"


def _methods_of_values(fields: Sequence[_Field], *, frozen: bool, eq: bool) -> dict[str, Any]:
    """Two values of a class are equal if their fields are; a frozen one can be hashed, too."""
    names = [field.name for field in fields]
    values = attrgetter(*names)

    def equals(self: object, other: object) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def hash_of(self: object) -> int:
        return hash(values(self))

    def reduce(self: object) -> tuple[Callable[[], object], tuple[()]]:
        return partial(type(self), **{name: getattr(self, name) for name in names}), ()

    methods: dict[str, Any] = {}
    if eq:
        methods |= {"__eq__": equals, "__hash__": hash_of if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse_change, "__delattr__": _refuse_change}
        methods["__reduce__"] = reduce
    return methods


def _refuse_change(self: object, name: str, *_value: object) -> None:
    from dataclasses import FrozenInstanceError  # noqa: PLC0415 - see above

    raise FrozenInstanceError(f"cannot change field {name!r} of {self!r}")


if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, replace
else:
    dataclass, field, fields, replace = _dataclass, _field, _fields, _replace
