"""Actions of rules: one of a few types, each with its own fields.

`TYPES` says where each acts: on requests, on files, on the links to other brokers, or at once on the
broker itself. Values only; the file named after the place implements it.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple

from echoless.broker.faults.fields import INT32_MAX, RuleError, RuleFields, snake_case
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode

DELAY_MS_MAX: Final = 3600 * 1000
SWAP_WAIT_MS: Final = 1000
"""The time the first of two requests waits for the second, unless the rule says otherwise."""


class Until(enum.StrEnum):
    """The end of a blackhole."""

    SESSION_END = "session_end"
    """The sessions and transactions that the client had with this broker's coordinators have ended."""
    REMOVED = "removed"


class InjectionPoint(enum.Enum):
    """The place where an action takes effect."""

    REQUEST = "request"
    FILE = "file"
    PEERS = "peers"
    ONCE = "once"
    """The broker itself, at the moment when the rule is added."""


class Later(enum.StrEnum):
    """The fate of the answers after a lost one on the same connection."""

    WAIT = "wait"
    """Later answers never arrive either, as after a lost packet: answers keep the order of their requests."""
    SEND = "send"
    """Later answers are sent: for clients that match answers to requests by correlation id."""


CRASH_POINTS: Final = {
    "before_append": InjectionPoint.FILE,
    "after_append": InjectionPoint.FILE,
    "after_fsync": InjectionPoint.FILE,
    "before_response": InjectionPoint.REQUEST,
    "in_roll": InjectionPoint.FILE,
    "in_snapshot": InjectionPoint.FILE,
}


@dataclass(slots=True, frozen=True, kw_only=True)
class Action:
    """A type and the fields that it takes; the others are None."""

    type: str
    ms: tuple[int, int] | None = None
    """The shortest and the longest delay, inclusive."""
    code: ErrorCode | None = None
    later: Later | None = None
    bytes: int | None = None
    """The size of one piece of a response."""
    broker_id: int | None = None
    path: str | None = None
    """A pattern (`*.log`) for the name of the file."""
    errno: int | None = None
    point: str | None = None
    right: AclOperation | None = None
    """The operation that is denied."""
    group: str | None = None
    """A consumer group."""
    member: str | None = None
    """A member id, an instance id or a client id; None: every member of the group."""
    until: Until | None = None

    @classmethod
    def read(cls, given: object, where: str = "action") -> Action:
        """Reads a type alone, or an object with a `type`; `where` it stands in the rule. Raises `RuleError`."""
        if isinstance(given, str):
            given = {"type": given}
        fields = RuleFields(where, given)
        kind = fields.needed("type", f"one of {', '.join(TYPES)}")
        if not isinstance(kind, str) or kind not in TYPES:
            raise fields.wrong("type", f"one of {', '.join(TYPES)}", TYPES)
        values = {
            name: field.read(fields, name, field.takes)
            for name, field in TYPES[kind].fields.items()
        }
        fields.close()
        return cls(type=kind, **values)

    @property
    def place(self) -> InjectionPoint:
        return self.place_of(self.type) if self.point is None else CRASH_POINTS[self.point]

    @staticmethod
    def place_of(kind: str) -> InjectionPoint:
        """The place of a type; a crash happens at its point."""
        return _PLACES.get(kind, InjectionPoint.REQUEST)

    @property
    def is_random(self) -> bool:
        return self.ms is not None and self.ms[0] < self.ms[1]

    def draw_s(self, rng: Random) -> float:
        """The length of one delay, in seconds."""
        assert self.ms is not None
        return rng.uniform(*self.ms) / 1000

    def document(self) -> dict[str, Any]:
        """The type and its fields, for JSON."""
        shown: dict[str, Any] = {
            name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None
        }
        if self.ms is not None:
            shown["ms"] = self.ms[0] if self.ms[0] == self.ms[1] else list(self.ms)
        if self.code is not None:
            shown["code"] = self.code.name
        if self.errno is not None:
            shown["errno"] = errno.errorcode[self.errno]
        if self.right is not None:
            shown["right"] = self.right.name.lower()
        return shown


# --- fields ---


class ActionField(NamedTuple):
    """One field of an action: how it is read, and what it says about itself."""

    read: Callable[[RuleFields, str, str], Any]
    """Takes the name of the field, and `takes` for error messages."""
    takes: str
    is_needed: bool = False
    choices: tuple[str, ...] = ()
    """The words that it takes, if these are all."""


class ActionType(NamedTuple):
    """A type of action: what happens, in a few words, and its fields."""

    says: str
    fields: Mapping[str, ActionField] = {}


def _ms(fields: RuleFields, name: str, takes: str) -> tuple[int, int]:
    value = fields.needed(name, takes)
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2 or any(type(one) is not int for one in pair):
        raise fields.wrong(name, takes)
    least, most = pair
    if not 0 <= least <= most <= DELAY_MS_MAX:
        raise fields.wrong(name, takes)
    return least, most


def _swap_ms(fields: RuleFields, name: str, takes: str) -> tuple[int, int]:
    return _ms(fields, name, takes) if name in fields else (SWAP_WAIT_MS, SWAP_WAIT_MS)


def _code(fields: RuleFields, name: str, takes: str) -> ErrorCode:
    value = fields.needed(name, takes)
    try:
        code = ErrorCode[value.upper()] if isinstance(value, str) else ErrorCode(value)
    except (KeyError, ValueError) as error:
        raise fields.wrong(name, takes, map(str.lower, ErrorCode.__members__)) from error
    if code is ErrorCode.NONE or isinstance(value, bool):
        raise fields.wrong(name, takes)
    return code


def _later(fields: RuleFields, name: str, takes: str) -> Later:
    try:
        return Later(fields.text(name) or Later.WAIT)
    except ValueError as error:
        raise fields.wrong(name, takes) from error


def _until(fields: RuleFields, name: str, takes: str) -> Until:
    try:
        return Until(fields.text(name) or Until.SESSION_END)
    except ValueError as error:
        raise fields.wrong(name, takes) from error


def _bytes(fields: RuleFields, name: str, _takes: str) -> int:
    size = fields.integer(name, 1, least=1, most=INT32_MAX)
    assert size is not None
    return size


def _broker_id(fields: RuleFields, name: str, takes: str) -> int:
    fields.needed(name, takes)
    broker_id = fields.integer(name, most=INT32_MAX)
    assert broker_id is not None
    return broker_id


def _path(fields: RuleFields, name: str, _takes: str) -> str | None:
    return fields.text(name)


def _errno(fields: RuleFields, name: str, takes: str) -> int:
    value = fields.text(name, "ENOSPC")
    number = next((no for no, one in errno.errorcode.items() if one == value), None)
    if number is None:
        raise fields.wrong(name, takes)
    return number


def _point(fields: RuleFields, name: str, takes: str) -> str:
    value = fields.needed(name, takes)
    if not isinstance(value, str) or value not in CRASH_POINTS:
        raise fields.wrong(name, takes)
    return value


def _right(fields: RuleFields, name: str, takes: str) -> AclOperation:
    value = fields.text(name, AclOperation.ALL.name)
    assert value is not None
    found = AclOperation.__members__.get(snake_case(value).upper())
    if found is None:
        raise fields.wrong(name, takes)
    return found


def _group(fields: RuleFields, name: str, takes: str) -> str:
    fields.needed(name, takes)
    group = fields.text(name)
    assert group is not None
    return group


def _member(fields: RuleFields, name: str, _takes: str) -> str | None:
    return fields.text(name)


_RIGHTS: Final = tuple(one.name.lower() for one in AclOperation)
_MS_TAKES: Final = f"milliseconds up to {DELAY_MS_MAX}, or [least, most]"
_MS: Final = {"ms": ActionField(_ms, _MS_TAKES, is_needed=True)}
_LATER: Final = {"later": ActionField(_later, " or ".join(Later), choices=tuple(Later))}
_CODE: Final = {
    "code": ActionField(
        _code, "the number or name of a Kafka error, such as 7 or REQUEST_TIMED_OUT", is_needed=True
    )
}
_GROUP: Final = {"group": ActionField(_group, "the id of a consumer group", is_needed=True)}
_PATH: Final = {"path": ActionField(_path, "a pattern for names of files, such as *.log")}

_PLACES: Final = {
    "fail_write": InjectionPoint.FILE,
    "slow_write": InjectionPoint.FILE,
    "fail_fsync": InjectionPoint.FILE,
    "slow_fsync": InjectionPoint.FILE,
    "cut_replica_link": InjectionPoint.PEERS,
    "expire_session": InjectionPoint.ONCE,
    "expire_member": InjectionPoint.ONCE,
    "move_coordinator": InjectionPoint.ONCE,
}
"""The places of the types that do not act on requests."""

TYPES: Final[Mapping[str, ActionType]] = {
    "drop_request": ActionType("never processed, never answered", _LATER),
    "drop_response": ActionType("processed, the answer lost", _LATER),
    "delay_request": ActionType(
        "processed late, and so is all that follows on the connection", _MS
    ),
    "delay_response": ActionType("processed at once, answered late", _MS),
    "error": ActionType("not processed, answered with the error", _CODE),
    "error_after": ActionType("processed, but answered with the error", _CODE),
    "deny": ActionType(
        "answered as to a client without that right",
        {"right": ActionField(_right, f"one of {', '.join(_RIGHTS)}", choices=_RIGHTS)},
    ),
    "expire_login": ActionType("processed and answered, then the client has to log in again"),
    "close_before": ActionType("the connection ends, nothing processed"),
    "close_after": ActionType("processed, then the connection ends without an answer"),
    "close_within": ActionType("processed, and the connection ends in the middle of the answer"),
    "trickle": ActionType(
        "the answer sent in pieces, with pauses", {"bytes": ActionField(_bytes, "bytes"), **_MS}
    ),
    "swap": ActionType(
        "waits until the next one that matches was processed",
        {"ms": ActionField(_swap_ms, _MS_TAKES)},
    ),
    "twice": ActionType("processed twice; the first answer is sent"),
    "hold_request": ActionType("waits until it is released, then processed"),
    "hold_response": ActionType("processed at once, answered when it is released"),
    "blackhole": ActionType(
        "everything of a client is lost, until its session has ended",
        {"until": ActionField(_until, " or ".join(Until), choices=tuple(Until))},
    ),
    "freeze": ActionType("waits until the rule ends"),
    "cut_replica_link": ActionType(
        "nothing passes between this broker and another one",
        {
            "broker_id": ActionField(
                _broker_id, "the id of the broker at the other end", is_needed=True
            )
        },
    ),
    "expire_session": ActionType("the session with the coordinator ends at once"),
    "expire_member": ActionType(
        "the session of a member of the group ends at once",
        {
            **_GROUP,
            "member": ActionField(
                _member, "a member id, an instance id or a client id; every member if it is missing"
            ),
        },
    ),
    "move_coordinator": ActionType("another replica leads the partition of the group", _GROUP),
    "fail_write": ActionType(
        "the next write fails",
        {
            **_PATH,
            "errno": ActionField(
                _errno, "the name of an error of the operating system, such as ENOSPC"
            ),
        },
    ),
    "slow_write": ActionType("a write takes that long", {**_PATH, **_MS}),
    "fail_fsync": ActionType("the next fsync fails", _PATH),
    "slow_fsync": ActionType("an fsync takes that long", {**_PATH, **_MS}),
    "crash": ActionType(
        "the broker kills itself",
        {
            "point": ActionField(
                _point,
                f"one of {', '.join(CRASH_POINTS)}",
                is_needed=True,
                choices=tuple(CRASH_POINTS),
            )
        },
    ),
}

__all__ = ["CRASH_POINTS", "TYPES", "Action", "ActionField", "InjectionPoint", "Later", "RuleError"]
