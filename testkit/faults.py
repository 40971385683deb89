"""Faults as context managers: a rule that is removed when the block ends.

    faults = Faults(Admin(broker.admin))
    with faults.rule("drop_response", match={"api": "produce", "topic": "orders"}, times=2) as lost:
        producer.send(...)
        lost.wait_for_hits(2)

    with faults.script("drop_response", {"type": "delay_response", "ms": 300}, "close_after", match={"api": "produce"}):
        producer.send(...)

    with faults.hold_requests(topic="orders", times=1) as held:
        producer.send(...)
        held.wait_until_held()
        held.release()

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
_ASK_FOR_S: Final = 5.0
"""The time that one question may take until the broker has something to say."""
_NOT_FOUND: Final = 404
_TOO_LATE: Final = 408
_WAIT_S: Final = 30.0


Step = str | Mapping[str, Any]
"""An action; or an action with conditions and a schedule of its own."""


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

    @property
    def seen(self) -> int:
        """The number of requests that it has matched, by the broker's count."""
        return int(self.document()["seen"])

    @property
    def held(self) -> int:
        """The number of requests, or answers, that it holds now."""
        return int(self.document().get("held", 0))

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
        self._wait_for("hits", count, timeout_s)

    def wait_until_held(self, count: int = 1, timeout_s: float = _WAIT_S) -> None:
        """Returns once it holds so many requests, or answers. Raises `TimeoutError` with the rule."""
        self._wait_for("held", count, timeout_s)

    def release(self, count: int | None = None) -> int:
        """Releases what it holds, the `count` oldest or all; returns their number."""
        if self._at_its_end is not None:
            return 0
        return self._faults.release(self.name, count)

    def _wait_for(self, field: str, count: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        document: dict[str, Any] | None = self._at_its_end
        while document is None:
            left_s = max(0.0, deadline - time.monotonic())
            if self._faults.has_come_to(self.name, field, count, min(left_s, _ASK_FOR_S)):
                return
            if time.monotonic() >= deadline:
                document = self.document()
        if document.get(field, 0) < count:
            raise TimeoutError(f"no {count} {field} within {timeout_s} s: {document}")


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
        optional: bool = False,
        **schedule: Any,
    ) -> FaultRule:
        """Adds a permanent rule. `schedule`: nth, skip, times, every, probability, seed, duration_ms.

        `optional`: whether it need not strike. Raises `AdminError` for a rule that the broker does not understand.
        """
        action = action if isinstance(action, str) else dict(action)
        return self._add(name, match, schedule, action=action, optional=optional)

    def add_script(
        self,
        *steps: Step,
        name: str | None = None,
        match: Mapping[str, Any] | None = None,
        optional: bool = False,
        **schedule: Any,
    ) -> FaultRule:
        """Adds steps that strike one after the other. `schedule`: duration_ms, seed.

        A step is an action, or has an `action`, and a `match` and a `schedule` of its own. Raises `AdminError`.
        """
        script = [step if isinstance(step, str) else dict(step) for step in steps]
        return self._add(name, match, schedule, script=script, optional=optional)

    def _add(
        self,
        name: str | None,
        match: Mapping[str, Any] | None,
        schedule: Mapping[str, Any],
        **fields: Any,
    ) -> FaultRule:
        rule = {"name": name, "match": dict(match or {}), "schedule": schedule, **fields}
        added = self._admin.post(_PAGE, {field: value for field, value in rule.items() if value})
        return FaultRule(self, str(added["rules"][0]["name"]))

    def never_struck(self, since_ms: int = 0) -> list[dict[str, Any]]:
        """The rules that never struck and are not optional, added since then; removed ones, too.

        `since_ms`: milliseconds since 1970.
        """
        missed = self._admin.get(_PAGE).get("never_struck", [])
        return [rule for rule in missed if rule["added_ms"] >= since_ms]

    def removed(self, since_ms: int = 0) -> list[dict[str, Any]]:
        """The rules that were added since then and removed, with their last counts.

        `since_ms`: milliseconds since 1970.
        """
        removed = self._admin.get(_PAGE, removed="true")["removed"]
        return [rule for rule in removed if rule["added_ms"] >= since_ms]

    def has_come_to(self, name: str, field: str, count: int, within_s: float) -> bool:
        """Whether a rule's `hits`, or what it has `held`, comes to this count in time.

        Raises `LookupError` if the broker has no rule of this name, `AdminError`.
        """
        within_ms = round(within_s * 1000)
        try:
            self._admin.get(f"{_PAGE}/{_quoted(name)}", **{field: count}, within_ms=within_ms)
        except AdminError as error:
            if error.status == _NOT_FOUND:
                raise LookupError(f"the broker holds no rule {name}") from error
            if error.status != _TOO_LATE:
                raise
            return False
        return True

    def release(self, name: str, count: int | None = None) -> int:
        """Releases what a rule holds, the `count` oldest or all; returns their number. Raises `AdminError`."""
        body = {} if count is None else {"count": count}
        return int(self._admin.post(f"{_PAGE}/{_quoted(name)}/release", body)["released"])

    def remove(self, name: str) -> dict[str, Any]:
        """Removes one rule, and returns its final state. Raises `AdminError`."""
        (rule,) = self._admin.delete(f"{_PAGE}/{_quoted(name)}")["rules"]
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
        optional: bool = False,
        **schedule: Any,
    ) -> Iterator[FaultRule]:
        """Adds a rule for the duration of a block; the broker may have exited by then."""
        rule = self.add(action, name=name, match=match, optional=optional, **schedule)
        try:
            yield rule
        finally:
            rule.end()

    @contextmanager
    def script(
        self,
        *steps: Step,
        name: str | None = None,
        match: Mapping[str, Any] | None = None,
        optional: bool = False,
        **schedule: Any,
    ) -> Iterator[FaultRule]:
        """Adds a script for the duration of a block: first this, then that."""
        rule = self.add_script(*steps, name=name, match=match, optional=optional, **schedule)
        try:
            yield rule
        finally:
            rule.end()

    @contextmanager
    def hold_requests(self, *, times: int | None = None, **match: Any) -> Iterator[FaultRule]:
        """Holds produce requests, or those of another `api`, until they are released or the block ends."""
        schedule: dict[str, Any] = {} if times is None else {"times": times}
        with self.rule("hold_request", match={"api": "produce", **match}, **schedule) as rule:
            yield rule

    @contextmanager
    def hold_responses(self, *, times: int | None = None, **match: Any) -> Iterator[FaultRule]:
        """Holds the answers to produce requests, or those of another `api`, which are processed."""
        schedule: dict[str, Any] = {} if times is None else {"times": times}
        with self.rule("hold_response", match={"api": "produce", **match}, **schedule) as rule:
            yield rule

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


def _quoted(name: str) -> str:
    return quote(name, safe="")
