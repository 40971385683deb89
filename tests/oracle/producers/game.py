"""One history of producers: each half is sent to both brokers at once, and then judged step by step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from tests.oracle.game import ANSWERS, Game
from tests.oracle.producers.history import ProducersHistory, Step
from tests.oracle.producers.judge import Judge, Pair
from tests.oracle.producers.play import Answer, Place, Player
from tests.oracle.side import Side, Sides
from tests.support.raw_batches import StoredBatch
from tests.support.raw_client import fetch_log

_EXPIRATION_MS: Final = 86_400_000


class ProducersGame(Game[Step]):
    """The steps are known before; what both brokers answer decides nothing but the verdict."""

    def __init__(
        self,
        history: ProducersHistory,
        places: Sequence[Place],
        judge: Judge,
        *,
        lost_snapshots: bool,
    ) -> None:
        super().__init__(history.seed, history.number)
        self.history = history
        self.places = places
        self.counts = judge.counts
        self._judge = judge
        self._lost_snapshots = lost_snapshots
        self._judged = 0

    @property
    def has_more(self) -> bool:
        return not self.is_over and bool(self.history.halves[1])

    def restarted(self) -> None:
        super().restarted()
        now_ms = time.time_ns() // 1_000_000
        self._judge.restart(now_ms, _EXPIRATION_MS, lost_snapshots=self._lost_snapshots)

    async def play(self, sides: Sides, half: int) -> None:
        if self.is_over:
            return
        steps = self.history.halves[half]
        kafka, echoless = await asyncio.gather(*(self._ask(side, steps) for side in sides))
        try:
            for step, *pair in zip(steps, kafka, echoless, strict=True):
                self._note(step, Pair(*pair), half)
                self._judge.judge(step, Pair(*pair))
            if half == 1:
                await self._judge_logs(sides)
        finally:
            self.figures[ANSWERS] = self._judge.answers_compared

    async def _ask(self, side: Side, steps: Sequence[Step]) -> Sequence[Answer]:
        player = Player(side)
        try:
            return await player.play(steps, self.places)
        finally:
            player.release()

    def _note(self, step: Step, pair: Pair, half: int) -> None:
        self.played[half].append(step)
        self.lines += [
            f"  {self._judged}: {step}",
            f"       kafka:    {pair.kafka}",
            f"       echoless: {pair.echoless}",
        ]
        self._judged += 1

    async def _judge_logs(self, sides: Sides) -> None:
        kafka, echoless = await asyncio.gather(*(self._logs(side) for side in sides))
        for slot, logs in enumerate(zip(kafka, echoless, strict=True)):
            self._judge.judge_log(slot, logs)

    async def _logs(self, side: Side) -> Sequence[Sequence[StoredBatch]]:
        connection = await side.borrow()
        logs = [await fetch_log(connection, *place) for place in self.places]
        side.give_back(connection)
        return logs
