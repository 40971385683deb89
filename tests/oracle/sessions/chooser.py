"""Chooses the steps of a history: what clients send, and sometimes what none does. Pure."""

from __future__ import annotations

import random
from typing import Final

from tests.oracle.sessions.step import (
    EARLIER,
    IDS_FROM,
    MAIN,
    MISSING,
    OTHER,
    PARTITIONS,
    DeleteRecords,
    Fetch,
    Produce,
    Step,
    ToggleTopic,
)

SLOTS: Final = 3
_BY_NAME: Final = (7, 9, 11, 12, 12)
_BY_ID: Final = (13, 15, 16, 17)
_HOW: Final = ("next",) * 30 + ("again", "skips", "unknown", "opens", "reopens", "ends", "whole")
_END_MAX: Final = 14
"""Offsets are named up to here, some of them beyond the end."""


class Chooser:
    """The choices of one history."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._is_open = [False] * SLOTS
        self._by_id = [rng.random() < 0.5 for _ in range(SLOTS)]

    def next(self) -> Step:
        rng = self._rng
        draw = rng.random()
        topic = rng.choice([MAIN, MAIN, OTHER])
        if draw < 0.25:
            return Produce(topic, rng.randrange(PARTITIONS[topic]), rng.choice([1, 1, 2, 3]))
        if draw < 0.29:
            return DeleteRecords(topic, rng.randrange(PARTITIONS[topic]), rng.randrange(6))
        if draw < 0.33:
            return ToggleTopic()
        slot = rng.randrange(SLOTS)
        how = rng.choice(_HOW) if self._is_open[slot] else rng.choice(["opens", "opens", "next"])
        self._is_open[slot] |= how == "opens"
        by_id = self._by_id[slot] != (rng.random() < 0.04)
        version = rng.choice(_BY_ID if by_id else _BY_NAME)
        is_whole = how not in {"next", "again", "skips"}
        share = 0.8 if is_whole else rng.choice([0.0, 0.0, 0.2, 0.4])
        rows = [
            (*key, rng.randrange(_END_MAX)) for key in self._keys(version) if rng.random() < share
        ]
        rng.shuffle(rows)
        forgets: list[tuple[str, int]] = []
        if not is_whole and rng.random() < 0.25:
            part = rng.choice([0.2, 0.2, 0.5, 1.0])
            forgets = [key for key in self._keys(version) if rng.random() < part]
        bytes_max = rng.choice([1, 1, 2**31 - 1, 2**31 - 1])
        isolation = rng.choice([0, 0, 0, 1])
        return Fetch(slot, how, version, tuple(rows), tuple(forgets), bytes_max, isolation)

    def _keys(self, version: int) -> list[tuple[str, int]]:
        keys = [(topic, index) for topic, count in PARTITIONS.items() for index in range(count)]
        keys += [(MISSING, 0), (MAIN, 7)]
        if version >= IDS_FROM:
            keys.append((EARLIER, 0))
        return keys
