"""A plain reading of docs/faults.md: which request which rule strikes. Knows nothing of the broker's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any


@dataclass
class _Rule:
    """A rule as it is posted, or a step of a script, and its counts."""

    name: str
    match: Mapping[str, Any]
    schedule: Mapping[str, Any]
    seen: int = 0
    hits: int = 0
    chance: Random = field(default_factory=Random)

    def matches(self, request: Mapping[str, Any]) -> bool:
        wanted = {name: value for name, value in self.match.items() if name != "error"}
        return all(request.get(name) == value for name, value in wanted.items())

    @property
    def is_used_up(self) -> bool:
        if "nth" in self.schedule:
            return self.hits == len(self._nth)
        return "times" in self.schedule and self.hits == self.schedule["times"]

    @property
    def _nth(self) -> list[int]:
        nth = self.schedule["nth"]
        return nth if isinstance(nth, list) else [nth]

    def strikes(self) -> bool:
        if self.is_used_up:
            return False
        self.seen += 1
        if "nth" in self.schedule:
            is_hit = self.seen in self._nth
        else:
            behind = self.seen - self.schedule.get("skip", 0)
            is_hit = behind > 0 and behind % self.schedule.get("every", 1) == 0
            if is_hit and "probability" in self.schedule:
                is_hit = self.chance.random() < self.schedule["probability"]
        self.hits += is_hit
        return is_hit


class Model:
    """Rules and scripts as they are posted, each with a name, and with a seed if it leaves something to chance."""

    def __init__(self, posted: Sequence[Mapping[str, Any]]) -> None:
        self._scripts = [self._steps(one) for one in posted]

    def _steps(self, posted: Mapping[str, Any]) -> list[_Rule]:
        match = posted.get("match", {})
        if "script" not in posted:
            return [self._rule(posted["name"], match, posted.get("schedule", {}))]
        steps = []
        for number, step in enumerate(posted["script"], 1):
            own = step if isinstance(step, dict) and "action" in step else {}
            schedule = {"times": 1, **own.get("schedule", {})}
            if "nth" in schedule:
                del schedule["times"]
            wanted = {**match, **own.get("match", {})}
            steps.append(self._rule(f"{posted['name']}/{number}", wanted, schedule))
        return steps

    @staticmethod
    def _rule(name: str, match: Mapping[str, Any], schedule: Mapping[str, Any]) -> _Rule:
        return _Rule(name, match, schedule, chance=Random(schedule.get("seed")))

    def struck_by(self, request: Mapping[str, Any]) -> str | None:
        """The name of the only rule that strikes the next request; `errors` are those of its answer."""
        current = [
            next((one for one in steps if not one.is_used_up), None) for steps in self._scripts
        ]
        candidates = [one for one in current if one is not None and one.matches(request)]
        before = [one for one in candidates if "error" not in one.match]
        behind = [one for one in candidates if "error" in one.match]
        for one in before:
            if one.strikes():
                return one.name
        for one in behind:
            wanted, found = one.match["error"], request.get("errors", ())
            if (found if wanted == "any" else wanted in found) and one.strikes():
                return one.name
        return None

    def counts(self) -> dict[str, tuple[int, int]]:
        """Matches and strikes of each rule, and of each step."""
        return {one.name: (one.seen, one.hits) for steps in self._scripts for one in steps}
