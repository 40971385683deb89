"""Scripts: actions that take place one after the other, each once the one before it has struck as often as it is to.

Each step is a rule of its own, which counts nothing before its turn has come; together they have one name. Steps may act
in different places: lose an answer, then fail a write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from echoless.broker.faults.action import InjectionPoint
from echoless.broker.faults.changes import Changes
from echoless.broker.faults.fields import RuleError, RuleFields
from echoless.broker.faults.match import Match
from echoless.broker.faults.rule import LASTING, ActiveRule, RuleText, read_name
from echoless.broker.faults.schedule import Schedule

STEPS_MAX: Final = 100
_STEP_TAKES: Final = "an action, or an object with action, match and schedule"


@dataclass(slots=True, frozen=True, kw_only=True)
class ScriptText:
    """A script as it was asked for, checked."""

    name: str | None
    match: Match
    schedule: Schedule
    steps: tuple[RuleText, ...]
    """Each with all its conditions, those of the whole script among them."""
    optional: bool = False

    @property
    def parts(self) -> tuple[RuleText, ...]:
        """The rules that it is made of."""
        return self.steps

    @classmethod
    def read(cls, given: object) -> ScriptText:
        """From the JSON of a rule that has a `script`. Raises `RuleError`."""
        fields = RuleFields("", given)
        match_fields, schedule_fields = fields.inside("match"), fields.inside("schedule")
        match, schedule = Match.read(match_fields), Schedule.read(schedule_fields)
        steps = fields.value("script")
        if not isinstance(steps, list) or not 0 < len(steps) <= STEPS_MAX:
            raise fields.wrong("script", f"a list of 1 to {STEPS_MAX} steps")
        script = cls(
            name=read_name(fields),
            match=match,
            schedule=schedule,
            steps=tuple(
                _read_step(step, f"script[{number}]", match, _seed(schedule, number))
                for number, step in enumerate(steps)
            ),
            optional=fields.fact("optional"),
        )
        if "action" in fields:
            raise RuleError("action: a rule has an action or a script, not both; leave out one")
        for part in (fields, match_fields, schedule_fields):
            part.close()
        _check_whole(schedule)
        return script


class ActiveScript:
    """A script in force."""

    __slots__ = ("_text", "added_ms", "name", "steps")

    def __init__(self, text: ScriptText, name: str, steps: Sequence[ActiveRule]) -> None:
        self._text = text
        self.name = name
        self.steps = steps
        self.added_ms = steps[0].added_ms

    @property
    def parts(self) -> Sequence[ActiveRule]:
        """The rules that it is made of."""
        return self.steps

    @property
    def changes(self) -> Changes:
        """Notes whatever happens to one of its steps."""
        return self.steps[0].changes

    @property
    def has_missed(self) -> bool:
        """Whether one of its steps has never struck, and should have."""
        return not self._text.optional and any(step.has_missed for step in self.steps)

    def end(self) -> None:
        """Ends all of its steps."""
        for step in self.steps:
            step.end()

    def document(self, now_s: float) -> dict[str, Any]:
        """The script and its counts, for JSON."""
        steps = [step.document(now_s) for step in self.steps]
        optional = {"optional": True} if self._text.optional else {}
        return {
            "name": self.name,
            "match": self._text.match.document(),
            "schedule": self._text.schedule.document(),
            "script": [{k: v for k, v in step.items() if k != "name"} for step in steps],
            **optional,
            "hits": sum(step["hits"] for step in steps),
            "seen": sum(step["seen"] for step in steps),
            "exhausted": all(step["exhausted"] for step in steps),
            "held": sum(step.get("held", 0) for step in steps),
        }


def _seed(schedule: Schedule, number: int) -> int | None:
    return None if schedule.seed is None else schedule.seed + number


def _read_step(given: object, where: str, match: Match, seed: int | None) -> RuleText:
    """One step; what it does not say about its requests, the script says."""
    if not isinstance(given, Mapping | str):
        raise RuleError(f"{where} takes {_STEP_TAKES}, not {given!r}")
    step = given if isinstance(given, Mapping) and "action" in given else {"action": given}
    fields = RuleFields(where, step)
    own = fields.value("match")
    if own is not None and not isinstance(own, Mapping):
        raise fields.wrong("match", "an object")
    schedule = fields.inside("schedule")
    if "duration_ms" in schedule:
        raise RuleError(
            f"{where}.schedule.duration_ms: the whole script has one; put it into its schedule"
        )
    for name in ("name", "script", "optional"):
        if name in fields:
            raise RuleError(f"{where}.{name}: the whole script has it, not a step")
    rule = RuleText.read({**step, "match": {**match.document(), **(own or {})}}, where)
    if rule.action.place is InjectionPoint.ONCE or rule.action.type in LASTING:
        why = "is done at once" if rule.action.place is InjectionPoint.ONCE else "has no end"
        raise RuleError(f"{where}.action: {rule.action.type} {why}; add it as a rule of its own")
    return replace(rule, schedule=_once(rule.schedule, seed))


def _once(schedule: Schedule, seed: int | None) -> Schedule:
    """A step strikes once, unless it says otherwise."""
    if schedule.seed is None and schedule.uses_chance:
        schedule = replace(schedule, seed=seed)
    return schedule if schedule.nth or schedule.times else replace(schedule, times=1)


def _check_whole(schedule: Schedule) -> None:
    only = Schedule(duration_ms=schedule.duration_ms, seed=schedule.seed)
    if schedule != only:
        name = next(one for one in schedule.document() if one not in {"duration_ms", "seed"})
        raise RuleError(
            f"schedule.{name}: a script takes duration_ms and seed; give {name} to one of its steps: "
            f'{{"action": ..., "schedule": {{"{name}": ...}}}}'
        )
