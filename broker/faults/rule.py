"""One rule: what it matches, when, and what it does; and why some rules are refused.

A rule that could never act, or a condition that its action cannot look at, is refused when it is
added, with the reason: silence would look like a passed test.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from echoless.broker.faults.action import Action, InjectionPoint
from echoless.broker.faults.barrier import Barrier
from echoless.broker.faults.changes import Changes
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
LASTING: Final = frozenset({"freeze", "cut_replica_link"})
"""Actions that last until their rule ends."""
_HOLDING: Final = frozenset({"hold_request", "hold_response"})
_ON_ANSWERS: Final = (
    *("drop_response", "delay_response", "hold_response", "close_after", "close_within"),
    *("trickle", "crash before_response"),
)
"""Actions for which it is early enough to know the answer."""
_OF_A_CLIENT: Final = ("client_id", "principal", "connection")
_PATHS: Final = frozenset({"actions"})
"""Names that `/faults/NAME` has taken."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RuleText:
    """A rule as it was asked for, checked."""

    name: str | None
    match: Match
    schedule: Schedule
    action: Action
    optional: bool = False
    """Whether it need not strike."""

    @property
    def parts(self) -> tuple[RuleText, ...]:
        """The rules that it is made of: itself."""
        return (self,)

    @classmethod
    def read(cls, given: object, where: str = "") -> RuleText:
        """From the JSON of one rule; `where` it stands, if it is part of another. Raises `RuleError`."""
        fields = RuleFields(where, given)
        match_fields, schedule_fields = fields.inside("match"), fields.inside("schedule")
        rule = cls(
            name=read_name(fields),
            match=Match.read(match_fields),
            schedule=Schedule.read(schedule_fields),
            action=Action.read(
                fields.needed("action", "what to do, such as 'drop_response'"),
                fields.path("action"),
            ),
            optional=fields.fact("optional"),
        )
        for part in (fields, match_fields, schedule_fields):
            part.close()
        _check(rule)
        if rule.action.place is InjectionPoint.ONCE:
            return replace(rule, schedule=Schedule(times=1))
        return rule


class ActiveRule:
    """A rule in force, and how often it has acted."""

    __slots__ = (
        *("action", "added_ms", "after", "barrier", "changes", "has_ended", "match", "name"),
        *("optional", "schedule", "turns"),
    )

    def __init__(
        self,
        text: RuleText,
        *,
        name: str,
        turns: Turns,
        added_ms: int = 0,
        after: ActiveRule | None = None,
        changes: Changes | None = None,
    ) -> None:
        """`after`: the step of a script before this one; `changes`: those of the script."""
        self.name = name
        self.match = text.match
        self.schedule = text.schedule
        self.action = text.action
        self.turns = turns
        self.optional = text.optional
        self.added_ms = added_ms
        """The time at which it was added, in milliseconds since 1970."""
        self.after = after
        self.changes = Changes() if changes is None else changes
        self.barrier = Barrier(self.changes) if text.action.type in _HOLDING else None
        """The requests that it holds, if it is one that holds."""
        self.has_ended = asyncio.Event()
        """Set when it is removed or its time is over: what lasts as long as the rule ends."""

    @property
    def parts(self) -> Sequence[ActiveRule]:
        """The rules that it is made of: itself."""
        return (self,)

    @property
    def is_due(self) -> bool:
        """Whether it takes part: the step before it, if there is one, is done."""
        before = self.after
        return before is None or before.turns.is_spent or before.has_ended.is_set()

    @property
    def has_missed(self) -> bool:
        """Whether it has never struck, and should have."""
        return not self.optional and not self.turns.hits

    def end(self) -> None:
        """Ends what lasts as long as the rule, and releases what it holds."""
        self.has_ended.set()
        if self.barrier is not None:
            self.barrier.open()
        self.changes.note()

    def document(self, now_s: float) -> dict[str, Any]:
        """The rule and its counts, for JSON."""
        return {
            "name": self.name,
            "match": self.match.document(),
            "schedule": self.schedule.document(),
            "action": self.action.document(),
            **({"optional": True} if self.optional else {}),
            "hits": self.turns.hits,
            "seen": self.turns.seen,
            "exhausted": self.turns.is_exhausted(now_s),
            **self._held(now_s),
        }

    def _held(self, now_s: float) -> dict[str, Any]:
        if self.barrier is None:
            return {}
        return {"held": self.barrier.count, "held_requests": self.barrier.document(now_s)}


def read_name(fields: RuleFields) -> str | None:
    """The name of a rule or a script. Raises `RuleError`."""
    name = fields.text("name")
    if name is not None and not _NAME.fullmatch(name):
        raise fields.wrong("name", "up to 100 letters, digits and . _ : -")
    if name in _PATHS:
        raise RuleError(f"name {name!r} is a path of its own (/faults/{name}); choose another")
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
    if action in LASTING:
        why = f"{action} takes topic and partition, or no match for the whole broker"
        refuse_fields(match, (*REQUEST_FIELDS, *BATCH_FIELDS), why)
        _check_lasting(rule)
    if action in {"error", "error_after"}:
        _check_error(rule)
    if action == "deny":
        _check_denial(match)
    if action == "blackhole":
        _check_blackhole(rule)
    if match.error is not None:
        _check_on_answer(rule.action)


def _check_blackhole(rule: RuleText) -> None:
    others = [name for name in _EVERY_FIELD if name not in _OF_A_CLIENT]
    refuse_fields(
        rule.match, others, f"all of a client is lost; blackhole takes {', '.join(_OF_A_CLIENT)}"
    )
    if not rule.match.given:
        raise RuleError(f"blackhole takes match: {', '.join(_OF_A_CLIENT)}; not every client")
    only = Schedule(skip=rule.schedule.skip, duration_ms=rule.schedule.duration_ms)
    if rule.schedule != only:
        name = next(one for one in rule.schedule.document() if one not in {"skip", "duration_ms"})
        raise RuleError(
            f"schedule.{name}: blackhole lasts from its first request on; it takes skip and duration_ms"
        )


def _check_on_answer(action: Action) -> None:
    kind = action.type if action.point is None else f"{action.type} {action.point}"
    if kind not in _ON_ANSWERS:
        raise RuleError(
            f"match.error is about the broker's answer, and {kind} takes place before there is one; "
            f"it takes one of {', '.join(_ON_ANSWERS)}"
        )


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
