"""The plan of the nemesis, from a seed: which fault, where, for how long, one after another. Pure.

Every kind comes once before any comes again, so that a short run has them all. Some steps carry a
second fault on another broker.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.proofs.rounds import rounds

_QUIET_S: Final = (0.5, 2.5)
_SECOND_FAULT_SHARE: Final = 0.3
_ONE_WAY_SHARE: Final = 0.4


class Kind(enum.StrEnum):
    """One way in which things break."""

    KILL = "SIGKILL of a broker"
    KILL_ALL = "SIGKILL of all brokers"
    CLEAN_RESTART = "clean restart of a broker"
    PAUSE = "pause shorter than the session"
    EXPIRE = "pause longer than the session"
    CUT_BROKERS = "link between two brokers cut"
    CUT_ZOOKEEPER = "link of a broker to ZooKeeper cut"
    ISOLATE = "broker cut from everybody"
    ZOOKEEPER_RESTART = "ZooKeeper killed and started"
    ZOOKEEPER_PAUSE = "ZooKeeper paused"
    FULL_DISK = "full disk"


OF_ONE_BROKER: Final = (
    Kind.KILL,
    Kind.CLEAN_RESTART,
    Kind.PAUSE,
    Kind.EXPIRE,
    Kind.CUT_BROKERS,
    Kind.CUT_ZOOKEEPER,
    Kind.ISOLATE,
)
"""Kinds that may be combined with another of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fault: after `quiet_s` without any, for `lasts_s`."""

    kind: Kind
    broker_id: int
    """The broker concerned, if any."""
    other_id: int
    """The other end of a link between brokers."""
    is_one_way: bool
    """Whether only packets to `broker_id` are lost."""
    quiet_s: float
    lasts_s: float
    second: Step | None = None
    """Begins and ends with this one."""


def make_plan(
    seed: int,
    kinds: Collection[Kind],
    *,
    broker_ids: Sequence[int],
    session_timeout_s: float,
    small_disk_id: int,
) -> Iterator[Step]:
    """An endless sequence of steps; the same for the same arguments."""
    dice = random.Random(seed)
    possible = [kind for kind in Kind if kind in kinds]
    together = [kind for kind in OF_ONE_BROKER if kind in kinds]
    for kind in rounds(dice, possible):
        brokers = dice.sample(list(broker_ids), 2)
        if kind is Kind.FULL_DISK:
            brokers = [small_disk_id, small_disk_id]
        second = None
        if kind in together and dice.random() < _SECOND_FAULT_SHARE:
            second = _step(dice, dice.choice(together), brokers[::-1], session_timeout_s)
        yield _step(dice, kind, brokers, session_timeout_s, second)


def _step(
    dice: random.Random,
    kind: Kind,
    brokers: Sequence[int],
    session_timeout_s: float,
    second: Step | None = None,
) -> Step:
    shortest, longest = _duration(kind, session_timeout_s)
    return Step(
        kind=kind,
        broker_id=brokers[0],
        other_id=brokers[1],
        is_one_way=dice.random() < _ONE_WAY_SHARE,
        quiet_s=dice.uniform(*_QUIET_S),
        lasts_s=dice.uniform(shortest, longest),
        second=second,
    )


def _duration(kind: Kind, session_timeout_s: float) -> tuple[float, float]:
    """The shortest and the longest duration, in seconds, of a fault of this kind."""
    match kind:
        case Kind.KILL_ALL | Kind.CLEAN_RESTART:
            return 0.0, 1.0
        case Kind.PAUSE:
            return 0.1 * session_timeout_s, 0.6 * session_timeout_s
        case Kind.EXPIRE:
            return 1.2 * session_timeout_s, 1.7 * session_timeout_s
        case _:
            return 0.2 * session_timeout_s, 1.7 * session_timeout_s
