"""The rules in force: their names, their order, and their state.

Rules are tried in the order in which they were added, and the first that acts on a request is the
only one that does. Single owner: the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from echoless.broker.faults.action import InjectionPoint
from echoless.broker.faults.fields import RuleError
from echoless.broker.faults.rule import ActiveRule, RuleText
from echoless.broker.faults.schedule import Turns

RULES_MAX: Final = 1000
_SEED_MAX: Final = 2**31 - 1


class NameTakenError(RuleError):
    """A rule of this name already exists."""


class Rules:
    """All rules of one broker. `on_change` is called after every change."""

    def __init__(self, rng: Random, on_change: Callable[[], None]) -> None:
        self._rng = rng
        self._on_change = on_change
        self._rules: dict[str, ActiveRule] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._rules)

    def of(self, *places: InjectionPoint) -> list[ActiveRule]:
        """The rules that act in those places, in their order."""
        return [rule for rule in self._rules.values() if rule.action.place in places]

    def documents(self) -> list[dict[str, Any]]:
        """All rules with their counts, for JSON."""
        now_s = asyncio.get_running_loop().time()
        return [rule.document(now_s) for rule in self._rules.values()]

    def add(self, texts: Sequence[RuleText]) -> list[ActiveRule]:
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

    def remove(self, name: str) -> ActiveRule:
        """Ends the rule. Raises `KeyError` if no rule has the name."""
        rule = self._rules.pop(name)
        rule.end()
        self._on_change()
        return rule

    def clear(self) -> list[ActiveRule]:
        """Ends all rules; returns them."""
        removed = list(self._rules.values())
        self._rules.clear()
        for rule in removed:
            rule.end()
        self._on_change()
        return removed

    def _put(self, text: RuleText) -> ActiveRule:
        loop = asyncio.get_running_loop()
        schedule = text.schedule
        seed = self._rng.randint(0, _SEED_MAX) if schedule.seed is None else schedule.seed
        if schedule.uses_chance or text.action.is_random:
            text = replace(text, schedule=replace(schedule, seed=seed))  # shown, to be repeated
        name = text.name or self._free_name()
        turns = Turns(schedule, seed=seed, now_s=loop.time())
        rule = self._rules[name] = ActiveRule(text, name=name, turns=turns)
        if schedule.duration_ms is not None:
            loop.call_later(schedule.duration_ms / 1000, self._end_in_time, rule)
        return rule

    def _free_name(self) -> str:
        while True:
            self._count += 1
            name = f"fault-{self._count}"
            if name not in self._rules:
                return name

    def _end_in_time(self, rule: ActiveRule) -> None:
        """Ends a lasting effect on time; the rule stays in the list with its counts."""
        if not rule.has_ended.is_set():
            rule.turns.end()
            rule.end()
            self._on_change()
