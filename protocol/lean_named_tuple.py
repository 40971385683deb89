"""`NamedTuple` without compiling the annotations of its fields, for the modules that a start loads.

`typing.NamedTuple` compiles the annotation of every field, which no one reads: 0.3 ms for a class of six fields,
and a start has ninety of them. This one makes the same classes with `collections.namedtuple` (0.07 ms). Type
checkers see `typing.NamedTuple`. `tests/protocol/test_lean_named_tuple.py` compares the two.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple"]


class _NamedTupleMaker(type):
    """Makes a named tuple of the body of a class; `_NamedTuple` itself, which has no bases, stays a class."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, namespace)
        fields = namespace.get("__annotations__", {})
        defaults = [namespace.pop(field) for field in fields if field in namespace]
        made = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])  # type: ignore[misc]  # noqa: PYI024
        for attribute, value in namespace.items():
            setattr(made, attribute, value)
        return made


class _NamedTuple(metaclass=_NamedTupleMaker):
    """The base class, as a module names it."""


if TYPE_CHECKING:
    from typing import NamedTuple
else:
    NamedTuple = _NamedTuple
