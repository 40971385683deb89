"""The rules of a soak: which, for whom, when and for how long, from a seed. Pure.

Every kind comes once before any comes again. A rule concerns one client's topic, so that faults can
be attributed to a client.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.proofs.rounds import rounds

_QUIET_S: Final = (0.1, 0.8)
_LASTS_S: Final = (0.5, 2.5)
_SHORT_S: Final = (0.2, 0.8)
_NOT_PROCESSED: Final = (
    "NOT_LEADER_OR_FOLLOWER",
    "NOT_ENOUGH_REPLICAS",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_TOPIC_OR_PARTITION",
)
_PROCESSED: Final = (
    "REQUEST_TIMED_OUT",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_LEADER_OR_FOLLOWER",
)
ON_REQUESTS: Final = (
    *("drop_request", "drop_response", "delay_request", "delay_response", "error", "error_after"),
    *("close_before", "close_after", "close_within", "trickle", "swap", "twice"),
)
ON_A_BROKER: Final = ("freeze", "slow_write", "slow_fsync", "crash")
IN_A_CLUSTER: Final = ("cut_replica_link", "expire_session")
_CRASH_POINTS: Final = (
    "before_append",
    "after_append",
    "before_response",
    "in_roll",
    "in_snapshot",
)
_BY_FILE: Final = frozenset({"before_append", "after_append", "in_roll", "in_snapshot"})
_DELAYED: Final = frozenset({"delay_request", "delay_response"})
_LOSSY: Final = frozenset({"drop_request", "drop_response"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rule for one broker: after `quiet_s`, for `lasts_s`."""

    kind: str
    broker_id: int
    action: dict[str, Any]
    match: dict[str, Any]
    schedule: dict[str, Any]
    quiet_s: float
    lasts_s: float


def make_plan(
    seed: int, topics: Sequence[str], broker_ids: Sequence[int], behind_lost: Sequence[str]
) -> Iterator[Step]:
    """An endless sequence of steps; the same for the same arguments.

    `behind_lost`: topics of clients that accept an answer after a lost one, and wait for it.
    """
    dice = random.Random(seed)
    kinds = ON_REQUESTS + ON_A_BROKER + (IN_A_CLUSTER if len(broker_ids) > 1 else ())
    for kind in rounds(dice, kinds):
        yield _step(dice, kind, topics, broker_ids, behind_lost)


def _step(
    dice: random.Random,
    kind: str,
    topics: Sequence[str],
    broker_ids: Sequence[int],
    behind_lost: Sequence[str],
) -> Step:
    topic, broker_id = dice.choice(topics), dice.choice(broker_ids)
    others = [one for one in broker_ids if one != broker_id]
    action = _action(dice, kind, others)
    if kind in _LOSSY and topic in behind_lost:
        action["later"] = "send"
    return Step(
        kind=kind,
        broker_id=broker_id,
        action=action,
        match=_match(kind, action, topic),
        schedule=_schedule(dice, kind),
        quiet_s=dice.uniform(*_QUIET_S),
        lasts_s=dice.uniform(*(_SHORT_S if kind == "freeze" else _LASTS_S)),
    )


def _action(dice: random.Random, kind: str, others: Sequence[int]) -> dict[str, Any]:
    action: dict[str, Any] = {"type": kind}
    if kind in _DELAYED:
        action["ms"] = [10, dice.choice((50, 300, 1500))]
    elif kind == "trickle":
        action |= {"bytes": dice.randrange(1, 9), "ms": dice.randrange(1, 8)}
    elif kind in {"slow_write", "slow_fsync"}:
        action["ms"] = dice.randrange(1, 40)
    elif kind == "error":
        action["code"] = dice.choice(_NOT_PROCESSED)
    elif kind == "error_after":
        action["code"] = dice.choice(_PROCESSED)
    elif kind == "crash":
        action["point"] = dice.choice(_CRASH_POINTS)
    elif kind == "cut_replica_link":
        action["broker_id"] = dice.choice(others)
    return action


def _match(kind: str, action: dict[str, Any], topic: str) -> dict[str, Any]:
    if kind in {*IN_A_CLUSTER, "freeze", "slow_write", "slow_fsync"}:
        return {}
    if action.get("point") in _BY_FILE:
        return {"topic": topic}
    return {"api": "produce", "topic": topic}


def _schedule(dice: random.Random, kind: str) -> dict[str, Any]:
    if kind in {*IN_A_CLUSTER, "freeze"}:
        return {}
    if kind == "crash":
        return {"skip": dice.randrange(3), "times": 1}
    return {
        "skip": dice.randrange(3),
        "times": dice.randrange(1, 6),
        "probability": dice.choice((0.3, 0.6, 1.0)),
        "seed": dice.randrange(2**31),
    }
