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
from typing import Any, Final

from broker.faults.fields import INT32_MAX, Fields, RuleError, snake_case
from protocol.acl import AclOperation
from protocol.errors import ErrorCode

DELAY_MS_MAX: Final = 3600 * 1000
SWAP_WAIT_MS: Final = 1000
"""How long the first of two requests waits for the second, unless the rule says otherwise."""


class Place(enum.Enum):
    """The place where an action takes effect."""

    REQUEST = "request"
    FILE = "file"
    PEERS = "peers"
    ONCE = "once"
    """The broker itself, at the moment when the rule is added."""


class Later(enum.StrEnum):
    """The fate of the answers after a lost one on the same connection."""

    WAIT = "wait"
    """They never arrive either, as after a lost packet: answers keep the order of their requests."""
    SEND = "send"
    """They are sent: for clients that match answers to requests by correlation id."""


CRASH_POINTS: Final = {
    "before_append": Place.FILE,
    "after_append": Place.FILE,
    "after_fsync": Place.FILE,
    "before_response": Place.REQUEST,
    "in_roll": Place.FILE,
    "in_snapshot": Place.FILE,
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

    @classmethod
    def read(cls, given: object) -> Action:
        """Reads a type alone, or an object with a `type`. Raises `RuleError`."""
        if isinstance(given, str):
            given = {"type": given}
        fields = Fields("action", given)
        kind = fields.needed("type", f"one of {', '.join(TYPES)}")
        if not isinstance(kind, str) or kind not in TYPES:
            raise fields.wrong("type", f"one of {', '.join(TYPES)}")
        values = {name: read(fields, name) for name, read in TYPES[kind].items()}
        fields.close()
        return cls(type=kind, **values)

    @property
    def place(self) -> Place:
        if self.point is not None:
            return CRASH_POINTS[self.point]
        return _PLACES.get(self.type, Place.REQUEST)

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


def _ms(fields: Fields, name: str) -> tuple[int, int]:
    takes = f"milliseconds up to {DELAY_MS_MAX}, or [least, most]"
    value = fields.needed(name, takes)
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2 or any(type(one) is not int for one in pair):
        raise fields.wrong(name, takes)
    least, most = pair
    if not 0 <= least <= most <= DELAY_MS_MAX:
        raise fields.wrong(name, takes)
    return least, most


def _swap_ms(fields: Fields, name: str) -> tuple[int, int]:
    return _ms(fields, name) if name in fields else (SWAP_WAIT_MS, SWAP_WAIT_MS)


def _code(fields: Fields, name: str) -> ErrorCode:
    takes = "the number or name of a Kafka error, such as 7 or REQUEST_TIMED_OUT"
    value = fields.needed(name, takes)
    try:
        code = ErrorCode[value.upper()] if isinstance(value, str) else ErrorCode(value)
    except (KeyError, ValueError) as error:
        raise fields.wrong(name, takes) from error
    if code is ErrorCode.NONE or isinstance(value, bool):
        raise fields.wrong(name, takes)
    return code


def _later(fields: Fields, name: str) -> Later:
    try:
        return Later(fields.text(name) or Later.WAIT)
    except ValueError as error:
        raise fields.wrong(name, " or ".join(Later)) from error


def _bytes(fields: Fields, name: str) -> int:
    size = fields.integer(name, 1, least=1, most=INT32_MAX)
    assert size is not None
    return size


def _broker_id(fields: Fields, name: str) -> int:
    takes = "the id of the broker at the other end"
    fields.needed(name, takes)
    broker_id = fields.integer(name, most=INT32_MAX)
    assert broker_id is not None
    return broker_id


def _path(fields: Fields, name: str) -> str | None:
    return fields.text(name)


def _errno(fields: Fields, name: str) -> int:
    value = fields.text(name, "ENOSPC")
    number = next((no for no, one in errno.errorcode.items() if one == value), None)
    if number is None:
        raise fields.wrong(name, "the name of an error of the operating system, such as ENOSPC")
    return number


def _point(fields: Fields, name: str) -> str:
    takes = f"one of {', '.join(CRASH_POINTS)}"
    value = fields.needed(name, takes)
    if not isinstance(value, str) or value not in CRASH_POINTS:
        raise fields.wrong(name, takes)
    return value


def _right(fields: Fields, name: str) -> AclOperation:
    value = fields.text(name, AclOperation.ALL.name)
    assert value is not None
    found = AclOperation.__members__.get(snake_case(value).upper())
    if found is None:
        raise fields.wrong(name, f"one of {', '.join(one.name.lower() for one in AclOperation)}")
    return found


def _group(fields: Fields, name: str) -> str:
    takes = "the id of a consumer group"
    fields.needed(name, takes)
    group = fields.text(name)
    assert group is not None
    return group


def _member(fields: Fields, name: str) -> str | None:
    return fields.text(name)


_PLACES: Final = {
    "fail_write": Place.FILE,
    "slow_write": Place.FILE,
    "fail_fsync": Place.FILE,
    "slow_fsync": Place.FILE,
    "cut_replica_link": Place.PEERS,
    "expire_session": Place.ONCE,
    "expire_member": Place.ONCE,
    "move_coordinator": Place.ONCE,
}
"""The places of the types that do not act on requests."""

TYPES: Final[Mapping[str, Mapping[str, Callable[[Fields, str], Any]]]] = {
    "drop_request": {"later": _later},
    "drop_response": {"later": _later},
    "delay_request": {"ms": _ms},
    "delay_response": {"ms": _ms},
    "error": {"code": _code},
    "error_after": {"code": _code},
    "deny": {"right": _right},
    "expire_login": {},
    "close_before": {},
    "close_after": {},
    "close_within": {},
    "trickle": {"bytes": _bytes, "ms": _ms},
    "swap": {"ms": _swap_ms},
    "twice": {},
    "freeze": {},
    "cut_replica_link": {"broker_id": _broker_id},
    "expire_session": {},
    "expire_member": {"group": _group, "member": _member},
    "move_coordinator": {"group": _group},
    "fail_write": {"path": _path, "errno": _errno},
    "slow_write": {"path": _path, "ms": _ms},
    "fail_fsync": {"path": _path},
    "slow_fsync": {"path": _path, "ms": _ms},
    "crash": {"point": _point},
}

__all__ = ["CRASH_POINTS", "TYPES", "Action", "Later", "Place", "RuleError"]
