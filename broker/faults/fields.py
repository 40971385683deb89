"""The fields of one JSON object of a rule: read by name, checked, and none left over.

Every error is a `RuleError` of one sentence that names the field, its value, and what it accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, Self

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_CAMEL_CASE: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def snake_case(name: str) -> str:
    """`InitProducerId`, as Kafka writes it, or `init_producer_id`: the latter."""
    return _CAMEL_CASE.sub("_", name).lower()


def meant(given: object, known: Iterable[str]) -> str:
    """The word that was probably meant, to follow an error message; empty if nothing known is like it."""
    found = get_close_matches(str(given).lower(), list(known), n=1, cutoff=0.7)
    return f" (did you mean {found[0]}?)" if found else ""


class RuleError(Exception):
    """The rule cannot be used; the message says why in one sentence."""


class RuleFields:
    """The fields that were sent. `close` rejects those that were never read."""

    def __init__(self, where: str, given: object) -> None:
        """`where`: the path of the object in the rule, for error messages; empty at the top."""
        if not isinstance(given, Mapping):
            raise RuleError(f"{where or 'a rule'} takes an object, not {given!r}")
        self._where = where
        self._given: Mapping[str, Any] = given
        self._asked: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        return self._given.get(name) is not None

    def value(self, name: str) -> Any:
        """The value as it was sent; None if it is missing."""
        self._asked[name] = None
        return self._given.get(name)

    def integer(
        self, name: str, default: int | None = None, *, least: int = 0, most: int = INT64_MAX
    ) -> int | None:
        """An integer from `least` to `most`, inclusive."""
        value = self.value(name)
        if value is None:
            return default
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, f"a whole number from {least} to {most}")
        return value

    def fact(self, name: str) -> bool:
        """True or false; false if it is missing."""
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return bool(value)

    def number(self, name: str, default: float, *, least: float, most: float) -> float:
        value = self.value(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, f"a number from {least:g} to {most:g}")
        if not least <= value <= most:
            raise self.wrong(name, f"a number from {least:g} to {most:g}")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a text")
        return value

    def needed(self, name: str, takes: str) -> Any:
        """The value. Raises `RuleError` if it is missing."""
        value = self.value(name)
        if value is None:
            raise RuleError(f"{self.path(name)} is missing: it takes {takes}")
        return value

    def inside(self, name: str) -> Self:
        """The fields of a nested object; none if it is missing."""
        value = self.value(name)
        return type(self)(self.path(name), {} if value is None else value)

    def close(self) -> None:
        """Raises `RuleError` for a field that was never read."""
        for name in self._given:
            if name not in self._asked:
                takes = ", ".join(self._asked) or "no fields"
                raise RuleError(f"{self.path(str(name))}: there is no such field, only {takes}")

    def path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def wrong(self, name: str, takes: str, known: Iterable[str] = ()) -> RuleError:
        """The error for a value; `known` are the words from which the one that was meant is guessed."""
        value = self._given.get(name)
        return RuleError(f"{self.path(name)} takes {takes}, not {value!r}{meant(value, known)}")


Reader = Callable[[RuleFields], Any]
