"""The rules in force: their names, their order, and their state.

Rules are tried in the order in which they were added, and the first that acts on a request is the
only one that does. Single owner: the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from echoless.broker.faults.action import InjectionPoint
from echoless.broker.faults.changes import Changes
from echoless.broker.faults.fields import RuleError
from echoless.broker.faults.reading_rules import AnyText
from echoless.broker.faults.rule import ActiveRule, RuleText
from echoless.broker.faults.schedule import Turns
from echoless.broker.faults.script import ActiveScript, ScriptText

RULES_MAX: Final = 1000
REMOVED_MAX: Final = 1000
"""Removed rules that are remembered, with their counts."""
_SEED_MAX: Final = 2**31 - 1

AnyRule = ActiveRule | ActiveScript


class NameTakenError(RuleError):
    """A rule of this name already exists."""


class Rules:
    """All rules of one broker. `on_change` is called after every change."""

    def __init__(
        self, rng: Random, on_change: Callable[[], None], now_ms: Callable[[], int]
    ) -> None:
        """`now_ms`: the wall clock, in milliseconds."""
        self._rng = rng
        self._on_change = on_change
        self._now_ms = now_ms
        self._rules: dict[str, AnyRule] = {}
        self._removed: deque[tuple[bool, dict[str, Any]]] = deque(maxlen=REMOVED_MAX)
        """Whether each never struck, and should have."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._rules)

    def of(self, *places: InjectionPoint) -> list[ActiveRule]:
        """The rules that act in those places, in their order."""
        parts = [part for rule in self._rules.values() for part in rule.parts]
        return [rule for rule in parts if rule.action.place in places]

    def documents(self) -> list[dict[str, Any]]:
        """All rules with their counts, for JSON."""
        now_s = asyncio.get_running_loop().time()
        return [rule.document(now_s) for rule in self._rules.values()]

    def never_struck(self) -> list[dict[str, Any]]:
        """The rules that never struck and are not optional, removed ones among them, for JSON."""
        now_s = asyncio.get_running_loop().time()
        present = [rule for rule in self._rules.values() if rule.has_missed]
        return [
            *(document for has_missed, document in self._removed if has_missed),
            *(_dated(rule, now_s, is_removed=False) for rule in present),
        ]

    def removed(self) -> list[dict[str, Any]]:
        """The rules that were removed, with their last counts, for JSON."""
        return [document for _, document in self._removed]

    def forget_removed(self) -> None:
        """Forgets the removed rules."""
        self._removed.clear()

    def named(self, name: str) -> AnyRule:
        """The rule of this name. Raises `KeyError`."""
        return self._rules[name]

    def add(self, texts: Sequence[AnyText]) -> list[AnyRule]:
        """Adds all of them or none. Raises `RuleError`, and `NameTakenError` for a used name."""
        if len(self._rules) + len(texts) > RULES_MAX:
            raise RuleError(f"there may be {RULES_MAX} rules, and {len(self._rules)} are there")
        names = set(self._rules)
        for text in texts:
            if text.name in names:
                raise NameTakenError(f"name {text.name!r} is taken: remove that rule first")
            if text.name is not None:
                names.add(text.name)
        added = [self._put(text) for text in texts]
        self._on_change()
        return added

    def remove(self, name: str) -> AnyRule:
        """Ends the rule. Raises `KeyError` if no rule has the name."""
        rule = self._rules.pop(name)
        self._end([rule])
        return rule

    def clear(self) -> list[AnyRule]:
        """Ends all rules; returns them."""
        removed = list(self._rules.values())
        self._rules.clear()
        self._end(removed)
        return removed

    def stop(self) -> None:
        """Releases what rules hold: the broker is stopping."""
        for rule in self._rules.values():
            rule.end()

    def _end(self, removed: Sequence[AnyRule]) -> None:
        now_s = asyncio.get_running_loop().time()
        for rule in removed:
            rule.end()
            self._removed.append((rule.has_missed, _dated(rule, now_s, is_removed=True)))
        self._on_change()

    def _put(self, text: AnyText) -> AnyRule:
        name = text.name or self._free_name()
        rule = self._rules[name] = (
            self._script(text, name) if isinstance(text, ScriptText) else self._rule(text, name)
        )
        duration_ms = text.schedule.duration_ms
        if duration_ms is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(duration_ms / 1000, self._end_in_time, rule)
        return rule

    def _script(self, text: ScriptText, name: str) -> ActiveScript:
        steps: list[ActiveRule] = []
        changes = Changes()
        for number, step in enumerate(text.steps, 1):
            before = steps[-1] if steps else None
            schedule = replace(step.schedule, duration_ms=text.schedule.duration_ms)
            one = self._rule(replace(step, schedule=schedule), f"{name}/{number}", before, changes)
            one.schedule = replace(one.schedule, duration_ms=None)  # shown of the whole script
            steps.append(one)
        return ActiveScript(text, name, steps)

    def _rule(
        self,
        text: RuleText,
        name: str,
        after: ActiveRule | None = None,
        changes: Changes | None = None,
    ) -> ActiveRule:
        schedule = text.schedule
        seed = self._rng.randint(0, _SEED_MAX) if schedule.seed is None else schedule.seed
        if schedule.uses_chance or text.action.is_random:
            text = replace(text, schedule=replace(schedule, seed=seed))  # shown, to be repeated
        turns = Turns(schedule, seed=seed, now_s=asyncio.get_running_loop().time())
        added_ms = self._now_ms()
        return ActiveRule(
            text, name=name, turns=turns, added_ms=added_ms, after=after, changes=changes
        )

    def _free_name(self) -> str:
        while True:
            self._count += 1
            name = f"fault-{self._count}"
            if name not in self._rules:
                return name

    def _end_in_time(self, rule: AnyRule) -> None:
        """Ends a lasting effect on time; the rule stays in the list with its counts."""
        parts = [part for part in rule.parts if not part.has_ended.is_set()]
        for part in parts:
            part.turns.end()
            part.end()
        if parts:
            self._on_change()


def _dated(rule: AnyRule, now_s: float, *, is_removed: bool) -> dict[str, Any]:
    return {**rule.document(now_s), "added_ms": rule.added_ms, "removed": is_removed}
