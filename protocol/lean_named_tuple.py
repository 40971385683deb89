"""`NamedTuple` without compiling anything at import, for the modules that a start loads.

`typing.NamedTuple` compiles the annotation of each field, and `collections.namedtuple` a `__new__` for each class: 0.3
and 0.07 ms a class, and a start has more than a hundred. This one gives all classes the same methods, but for
`__new__`, which is copied from one with as many fields and other names (0.01 ms). Making an instance takes as long
as with the others. Type checkers see `typing.NamedTuple`. `tests/protocol/test_lean_named_tuple.py` compares the two.
"""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]  # what namedtuple reads fields with
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

__all__ = ["NamedTuple"]

_tuple_new: Final = tuple.__new__
_NEW: Final[tuple[Callable[..., Any], ...]] = (
    lambda _cls: _tuple_new(_cls, ()),
    lambda _cls, a: _tuple_new(_cls, (a,)),
    lambda _cls, a, b: _tuple_new(_cls, (a, b)),
    lambda _cls, a, b, c: _tuple_new(_cls, (a, b, c)),
    lambda _cls, a, b, c, d: _tuple_new(_cls, (a, b, c, d)),
    lambda _cls, a, b, c, d, e: _tuple_new(_cls, (a, b, c, d, e)),
    lambda _cls, a, b, c, d, e, f: _tuple_new(_cls, (a, b, c, d, e, f)),
    lambda _cls, a, b, c, d, e, f, g: _tuple_new(_cls, (a, b, c, d, e, f, g)),
    lambda _cls, a, b, c, d, e, f, g, h: _tuple_new(_cls, (a, b, c, d, e, f, g, h)),
)
"""`__new__` by the number of fields. The few classes that have more compile theirs."""
_GLOBALS: Final = {"_tuple_new": _tuple_new, "__builtins__": {}}
_getters: Final[list[Any]] = []


class _NamedTupleMaker(type):
    """Makes a named tuple of the body of a class; `_NamedTuple` itself, which has no bases, stays a class."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, namespace)
        fields = tuple(namespace.get("__annotations__", ()))
        defaults = {field: namespace[field] for field in fields if field in namespace}
        members = {
            **_METHODS,
            "__slots__": (),
            "__match_args__": fields,
            "__new__": _new(namespace["__qualname__"], fields, tuple(defaults.values())),
            "_fields": fields,
            "_field_defaults": defaults,
        }
        return type(name, (tuple,), members | namespace | _getters_of(fields))


def _new(title: str, fields: tuple[str, ...], defaults: tuple[object, ...]) -> FunctionType:
    code = _new_code(fields).replace(co_varnames=("_cls", *fields), co_name="__new__")
    function = FunctionType(code, _GLOBALS, "__new__", defaults)
    function.__qualname__ = f"{title}.__new__"
    return function


def _new_code(fields: Sequence[str]) -> CodeType:
    if len(fields) < len(_NEW):
        return _NEW[len(fields)].__code__
    listed = ", ".join(fields)
    new: Callable[..., Any] = eval(f"lambda _cls, {listed}: _tuple_new(_cls, ({listed}))", _GLOBALS)  # noqa: S307 - the names are our own
    return new.__code__


def _getters_of(fields: Sequence[str]) -> dict[str, Any]:
    """The descriptors that read the fields: they know only positions, so all classes share them."""
    for position in range(len(_getters), len(fields)):
        _getters.append(_tuplegetter(position, f"Alias for field number {position}"))
    return dict(zip(fields, _getters, strict=False))


def _make(cls: Any, values: Iterable[object]) -> Any:
    made = _tuple_new(cls, values)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **changes: object) -> Any:
    made = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return made


def _repr(self: Any) -> str:
    shown = ", ".join([f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)])
    return f"{type(self).__name__}({shown})"


def _asdict(self: Any) -> dict[str, Any]:
    return dict(zip(self._fields, self, strict=True))


def _getnewargs(self: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(self)


_METHODS: Final = {
    "_make": classmethod(_make),
    "_replace": _replace,
    "__replace__": _replace,
    "__repr__": _repr,
    "_asdict": _asdict,
    "__getnewargs__": _getnewargs,
}
"""The methods of all classes."""


class _NamedTuple(metaclass=_NamedTupleMaker):
    """The base class, as a module names it."""


if TYPE_CHECKING:
    from typing import NamedTuple
else:
    NamedTuple = _NamedTuple
