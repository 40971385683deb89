"""One configuration name: a dataclass field that carries its kind and its description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, FrozenInstanceError, field, fields
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


class ConfigValues:
    """Configuration names with their values. No one sets them but `change`, for those of `broker/config/dynamic.py`.

    Base of the dataclasses that declare the names. What `dataclass` would generate for 120 of them, an `__init__` and
    methods that freeze, takes 5 ms of a start to compile.
    """

    __slots__ = ()

    def __init__(self, **values: Any) -> None:
        """Takes values by name; names that are left out have their default. Raises `TypeError` for an unknown one."""
        for known in fields(self):  # type: ignore[arg-type]  # every class derived from this one is a dataclass
            make = known.default_factory
            default = known.default if make is MISSING else make()
            object.__setattr__(self, known.name, values.pop(known.name, default))
        if values:
            raise TypeError(f"there is no configuration name {next(iter(values))}")

    def change(self, values: Mapping[str, Any]) -> None:
        """Puts new values into force in a running broker. Called by `DynamicConfig.apply` alone."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(
            f"the configuration does not change: {name} is set when it is made"
        )
