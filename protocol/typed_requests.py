"""kio's request entities -> requests of one class per API, whatever the version.

kio has one class per API and version, and each has only the fields of its version. A handler declares a named
tuple instead: the fields that it reads, under kio's names, with a default for each that some version lacks.
How the tuple is made of a class of kio is worked out once for each version. A row of an array has a named tuple
of its own, which the handler makes when it reaches the row. Knows nothing of the network and imports nothing
of kio.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])


def typed(cls: type[T], entity: Any) -> T:
    """The entity's fields as a `cls`, a named tuple; those that its version lacks have their defaults."""
    read: Callable[[Any], T] = _reader(cls, type(entity))  # type: ignore[arg-type]  # hashable; Any hides it
    return read(entity)


@functools.cache
def _reader(cls: Any, entity: Any) -> Callable[[Any], Any]:
    """Raises `TypeError` if the version lacks a field without a default: a handler's mistake."""
    known = {field.name for field in dataclasses.fields(entity)}
    names = [name for name in cls._fields if name in known]
    lacking = [one for one in cls._fields if one not in known and one not in cls._field_defaults]
    if lacking:
        raise TypeError(
            f"{entity.__module__}.{entity.__name__} has no {', '.join(lacking)}; "
            f"{cls.__name__} needs a default"
        )
    if len(names) < 2:  # attrgetter would not return a tuple
        return lambda one: cls(**{name: getattr(one, name) for name in names})
    values = attrgetter(*names)
    if len(names) == len(cls._fields):
        return lambda one: cls(*values(one))
    return lambda one: cls(**dict(zip(names, values(one), strict=True)))
