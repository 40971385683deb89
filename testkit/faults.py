"""Faults as context managers: a rule that is removed when the block ends.

    faults = Faults(Admin(broker.admin))
    with faults.rule("drop_response", match={"api": "produce", "topic": "orders"}, times=2) as lost:
        producer.send(...)
        lost.wait_for_hits(2)

The possible matches and actions: `docs/faults.md`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from echoless.testkit.admin import Admin, AdminError

_PAGE: Final = "/faults"
_ASK_AGAIN_S: Final = 0.01
_NOT_FOUND: Final = 404
_WAIT_S: Final = 30.0


class FaultRule:
    """A fault rule of a broker, present or past; its count can still be read after its block."""

    def __init__(self, faults: Faults, name: str) -> None:
        self.name = name
        self._faults = faults
        self._at_its_end: dict[str, Any] | None = None

    @property
    def hits(self) -> int:
        """The number of times it has acted, by the broker's count."""
        return int(self.document()["hits"])

    def document(self) -> dict[str, Any]:
        """The rule as the broker shows it. Raises `LookupError` if it has none of this name."""
        if self._at_its_end is not None:
            return self._at_its_end
        for rule in self._faults.rules():
            if rule["name"] == self.name:
                return rule
        raise LookupError(f"the broker holds no rule {self.name}")

    def end(self) -> None:
        """Removes it; the broker may have exited, or have forgotten it."""
        try:
            self._at_its_end = self._faults.remove(self.name)
        except AdminError as error:
            if error.status not in (None, _NOT_FOUND):
                raise

    def wait_for_hits(self, count: int, timeout_s: float = _WAIT_S) -> None:
        """Returns once it has acted `count` times. Raises `TimeoutError` with the rule."""
        deadline = time.monotonic() + timeout_s
        while (document := self.document())["hits"] < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {count} hits within {timeout_s} s: {document}")
            time.sleep(_ASK_AGAIN_S)


class Faults:
    """The fault rules of one broker. The actions and what rules match: `docs/faults.md`."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def rules(self) -> list[dict[str, Any]]:
        """All of them with their counts, in the order in which they are evaluated."""
        rules: list[dict[str, Any]] = self._admin.get(_PAGE)["rules"]
        return rules

    def add(
        self,
        action: str | Mapping[str, Any],
        *,
        name: str | None = None,
        match: Mapping[str, Any] | None = None,
        **schedule: Any,
    ) -> FaultRule:
        """Adds a permanent rule. `schedule`: skip, times, probability, seed, duration_ms.

        Raises `AdminError` for a rule that the broker does not understand.
        """
        action = action if isinstance(action, str) else dict(action)
        rule = {"name": name, "match": dict(match or {}), "schedule": schedule, "action": action}
        added = self._admin.post(_PAGE, {field: value for field, value in rule.items() if value})
        return FaultRule(self, str(added["rules"][0]["name"]))

    def remove(self, name: str) -> dict[str, Any]:
        """Removes one rule, and returns its final state. Raises `AdminError`."""
        (rule,) = self._admin.delete(f"{_PAGE}/{quote(name, safe='')}")["rules"]
        return dict(rule)

    def clear(self) -> None:
        """Removes every rule."""
        self._admin.delete(_PAGE)

    @contextmanager
    def rule(
        self,
        action: str | Mapping[str, Any],
        *,
        name: str | None = None,
        match: Mapping[str, Any] | None = None,
        **schedule: Any,
    ) -> Iterator[FaultRule]:
        """Adds a rule for the duration of a block; the broker may have exited by then."""
        rule = self.add(action, name=name, match=match, **schedule)
        try:
            yield rule
        finally:
            rule.end()

    @contextmanager
    def drop_responses(self, *, times: int | None = None, **match: Any) -> Iterator[FaultRule]:
        """Loses the answers to produce requests, which are processed."""
        schedule: dict[str, Any] = {} if times is None else {"times": times}
        wanted = {"api": "produce", **match}
        with self.rule("drop_response", match=wanted, **schedule) as rule:
            yield rule

    @contextmanager
    def drop_requests(self, *, times: int | None = None, **match: Any) -> Iterator[FaultRule]:
        """Loses produce requests in transit: nothing is processed, nothing answered."""
        schedule: dict[str, Any] = {} if times is None else {"times": times}
        wanted = {"api": "produce", **match}
        with self.rule("drop_request", match=wanted, **schedule) as rule:
            yield rule
