"""One rule: what it matches, when, and what it does; and why some rules are refused.

A rule that could never act, or a condition that its action cannot look at, is refused when it is
added, with the reason: silence would look like a passed test.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from echoless.broker.faults.action import Action, InjectionPoint
from echoless.broker.faults.fields import RuleError, RuleFields
from echoless.broker.faults.match import (
    BATCH_FIELDS,
    PARTITION_FIELDS,
    REQUEST_FIELDS,
    Match,
    refuse_fields,
)
from echoless.broker.faults.schedule import Schedule, Turns
from echoless.broker.faults.served import BATCH_API, ERROR_APIS, NEED_NO_RIGHT, check_api

_NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_EVERY_FIELD: Final = (*REQUEST_FIELDS, *PARTITION_FIELDS)
_BY_PATH: Final = frozenset({"fail_fsync", "slow_fsync"})
_POINTS_BY_PATH: Final = frozenset({"after_fsync", "in_roll", "in_snapshot"})
_LASTING: Final = frozenset({"freeze", "cut_replica_link"})


@dataclass(slots=True, frozen=True, kw_only=True)
class RuleText:
    """A rule as it was asked for, checked."""

    name: str | None
    match: Match
    schedule: Schedule
    action: Action

    @classmethod
    def read(cls, given: object) -> RuleText:
        """From the JSON of one rule. Raises `RuleError`."""
        fields = RuleFields("", given)
        match_fields, schedule_fields = fields.inside("match"), fields.inside("schedule")
        rule = cls(
            name=_name(fields),
            match=Match.read(match_fields),
            schedule=Schedule.read(schedule_fields),
            action=Action.read(fields.needed("action", "what to do, such as 'drop_response'")),
        )
        for part in (fields, match_fields, schedule_fields):
            part.close()
        _check(rule)
        if rule.action.place is InjectionPoint.ONCE:
            return replace(rule, schedule=Schedule(times=1))
        return rule


class ActiveRule:
    """A rule in force, and how often it has acted."""

    __slots__ = ("action", "has_ended", "match", "name", "schedule", "turns")

    def __init__(self, text: RuleText, *, name: str, turns: Turns) -> None:
        self.name = name
        self.match = text.match
        self.schedule = text.schedule
        self.action = text.action
        self.turns = turns
        self.has_ended = asyncio.Event()
        """Set when it is removed or its time is over: what lasts as long as the rule ends."""

    def end(self) -> None:
        self.has_ended.set()

    def document(self, now_s: float) -> dict[str, Any]:
        """The rule and its counts, for JSON."""
        return {
            "name": self.name,
            "match": self.match.document(),
            "schedule": self.schedule.document(),
            "action": self.action.document(),
            "hits": self.turns.hits,
            "seen": self.turns.seen,
            "exhausted": self.turns.is_exhausted(now_s),
        }


def read_rules(given: object) -> list[RuleText]:
    """One rule, a list of them, or `{"rules": [...]}`. Raises `RuleError`."""
    if isinstance(given, Mapping) and "rules" in given:
        fields = RuleFields("", given)
        given = fields.value("rules")
        fields.close()
        if not isinstance(given, list):
            raise RuleError(f"rules takes a list of rules, not {given!r}")
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise RuleError("rules takes at least one rule")
    return [RuleText.read(one) for one in listed]


def _name(fields: RuleFields) -> str | None:
    name = fields.text("name")
    if name is not None and not _NAME.fullmatch(name):
        raise fields.wrong("name", "up to 100 letters, digits and . _ : -")
    return name


def _check(rule: RuleText) -> None:
    """Raises `RuleError` for what cannot be."""
    check_api(rule.match)
    match rule.action.place:
        case InjectionPoint.REQUEST:
            _check_request(rule)
        case InjectionPoint.FILE:
            _check_file(rule)
        case InjectionPoint.PEERS:
            refuse_fields(rule.match, _EVERY_FIELD, "cut_replica_link takes no match: it is a link")
            _check_lasting(rule)
        case InjectionPoint.ONCE:
            action = rule.action.type
            why = "there is one" if action == "expire_session" else "the group is in the action"
            refuse_fields(rule.match, _EVERY_FIELD, f"{action} takes no match: {why}")
            if rule.schedule != Schedule():
                raise RuleError(f"schedule: {action} takes none, it is done once and at once")


def _check_request(rule: RuleText) -> None:
    action, match = rule.action.type, rule.match
    if action in _LASTING:
        why = f"{action} takes topic and partition, or no match for the whole broker"
        refuse_fields(match, (*REQUEST_FIELDS, *BATCH_FIELDS), why)
        _check_lasting(rule)
    if action in {"error", "error_after"}:
        _check_error(rule)
    if action == "deny":
        _check_denial(match)


def _check_error(rule: RuleText) -> None:
    """The response that carries the error is different for every API."""
    api = rule.match.api
    if api is None and any(name in BATCH_FIELDS for name in rule.match.given):
        api = BATCH_API
    if api not in ERROR_APIS:
        found = "no match.api" if api is None else f"match.api {api!r}"
        raise RuleError(f"{rule.action.type} takes match.api: {', '.join(ERROR_APIS)}; not {found}")


def _check_denial(match: Match) -> None:
    refuse_fields(match, ("partition",), "rights are to topics: deny takes topic")
    if match.api in NEED_NO_RIGHT:
        raise RuleError(f"match.api: every client may send {match.api}; there is no right to deny")


def _check_lasting(rule: RuleText) -> None:
    only = Schedule(duration_ms=rule.schedule.duration_ms)
    if rule.schedule != only:
        name = next(iter(rule.schedule.document()))
        raise RuleError(
            f"schedule.{name}: {rule.action.type} lasts until its duration_ms is over or it is "
            "removed, and takes no other schedule"
        )


def _check_file(rule: RuleText) -> None:
    action = rule.action
    what = action.type if action.point is None else f"crash {action.point}"
    why = f"{what} takes topic and partition, because files know nothing of requests"
    refuse_fields(rule.match, REQUEST_FIELDS, why)
    if action.type in _BY_PATH or action.point in _POINTS_BY_PATH:
        refuse_fields(rule.match, BATCH_FIELDS, f"{what} takes topic and partition, not one batch")
