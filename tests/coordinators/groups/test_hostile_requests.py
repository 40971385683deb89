"""Requests of any type with values that no client gives, while appends are held and while they are not.

An exception would cost their group its soft state; in this shell it fails the test.
"""

from __future__ import annotations

import random
import struct
import typing
from types import NoneType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.coordinators.groups import requests
from echoless.coordinators.groups.consumer import groups
from echoless.coordinators.groups.consumer.requests import ConsumerHeartbeat
from echoless.coordinators.groups.requests import GroupRequest, JoinGroup
from tests.coordinators.groups.consumers import ConsumerShell
from tests.coordinators.groups.history import CONFIG

TEXTS = ("", "m1", "m2", "t", "range", "uniform", "x" * 40_000, "€" * 20_000, "😀" * 1_024)
NUMBERS = (-(2**31), -3, -2, -1, 0, 1, 2, 6_000, 30_000, 2**31 - 1)
GROUPS = ("g", "g", "g", "h", "", "€" * 1_024, "x" * 40_000)
TOPICS = ("t", "u")
REQUESTS = 25


def hostile(choices: random.Random, name: str, kind: Any) -> Any:
    """A value of this type, for the field of this name."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if name == "group_id":
        return choices.choice(GROUPS)
    if name == "topic":
        return choices.choice(TOPICS)  # the handler has looked whether there is such a topic
    if NoneType in arguments:
        given = [one for one in arguments if one is not NoneType]
        return None if choices.randrange(3) == 0 else hostile(choices, name, given[0])
    if origin in (tuple, frozenset) and (origin is frozenset or arguments[-1] is Ellipsis):
        items = (hostile(choices, "", arguments[0]) for _ in range(choices.randrange(3)))
        return origin(items)
    if origin is tuple:
        return tuple(hostile(choices, "", one) for one in arguments)
    if hasattr(kind, "_fields"):
        return made(choices, kind)
    if kind is bool:
        return bool(choices.randrange(2))
    if kind is int:
        return choices.choice(NUMBERS)
    if kind is bytes:
        return b"z" * choices.choice((0, 16, 40_000))
    return choices.choice(TEXTS) if kind is str else None


def made(choices: random.Random, kind: Any) -> Any:
    """A request of this type, or a part of one."""
    fields = typing.get_type_hints(kind)
    fields.pop("prepared", None)  # the handler makes it of the others
    return kind(**{name: hostile(choices, name, one) for name, one in fields.items()})


def request(choices: random.Random, shell: ConsumerShell) -> GroupRequest:
    """A hostile request; half of the joins are sound but for two fields."""
    kind = choices.choice(typing.get_args(requests.GroupRequest))
    bad = made(choices, kind)
    sound: Any = None
    if kind is ConsumerHeartbeat:
        sound = shell.heartbeat_request(choices.choice(("m1", "m2")), choices.choice((0, 1, -1)))
    elif kind is JoinGroup:
        sound = shell.join_request("")
    if sound is None or choices.randrange(2):
        return bad
    names = choices.sample([one for one in sound._fields if one != "group_id"], 2)
    return sound._replace(**{name: getattr(bad, name) for name in names})


def play(choices: random.Random) -> None:
    shell = ConsumerShell(CONFIG)
    for _ in range(REQUESTS):
        if choices.randrange(3) == 0:
            shell.holds_appends = not shell.holds_appends
        if not shell.holds_appends:
            shell.commit_all()
        asked = request(choices, shell)
        if isinstance(asked, JoinGroup):  # the broker draws it: a member's id is never another's
            shell.uuids += 1
            asked = asked._replace(uuid=f"{shell.uuids:04}")
        shell.send(asked)
        if choices.randrange(5) == 0:
            shell.pass_time(choices.choice((1_000, 5_000, 40_000)))
    shell.holds_appends = False
    shell.commit_all()


@given(st.randoms(use_true_random=False))
def test_no_request_raises(choices: random.Random) -> None:
    """Each is answered or waits, whatever it says."""
    play(choices)


def play_all(seeds: range) -> None:
    for seed in seeds:
        play(random.Random(seed))


def test_a_check_that_is_missing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some request raises if heartbeats are not looked at before they wait."""
    monkeypatch.setattr(groups, "flaw", lambda *_: None)
    with pytest.raises((KeyError, struct.error)):
        play_all(range(100))
