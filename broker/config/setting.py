"""One configuration name: a dataclass field that carries its kind and its description."""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple, TypeVar

from echoless.broker.config.values import ValueKind

Value = TypeVar("Value")


class Setting(NamedTuple):
    """The metadata of one configuration name."""

    name: str
    default: Any
    kind: ValueKind[Any]
    doc: str
    flag_metavar: str | None
    """The metavar, for names that have a flag of their own."""
    flag_alone: str | None
    """The value of the flag when it is given without one; None if it needs one."""


def setting(
    default: Value,
    kind: ValueKind[Any],
    doc: str,
    flag_metavar: str | None = None,
    flag_alone: str | None = None,
) -> Value:
    """A field of a configuration; typed as its default so that the class reads like any dataclass."""
    metadata = {
        "kind": kind,
        "doc": doc,
        "flag_metavar": flag_metavar,
        "flag_alone": flag_alone,
    }
    return field(default=default, metadata=metadata)
