"""Plays games to both brokers, restarts both between their two halves, and collects the findings."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from tests.oracle.brokers import Brokers
from tests.oracle.game import Failure, Game, MismatchError
from tests.oracle.report import Report
from tests.oracle.script import History, Script, Table, Variant
from tests.oracle.side import Sides

StepT = TypeVar("StepT")


class Contest(Generic[StepT]):
    """Both brokers, ready to play histories of one script."""

    def __init__(self, script: Script[StepT], brokers: Brokers) -> None:
        self._script = script
        self._brokers = brokers
        self._labels = itertools.count()

    def run(self, numbers: Iterable[int], seeds: Iterable[int]) -> Report:
        """Plays the histories of these numbers, of each of the seeds."""
        report = Report(self._script.differences if self._brokers.is_echoless else ())
        for variant, histories in self._groups(list(numbers), list(seeds)):
            for game in self._play(variant, histories):
                report.add(game)
        return report

    def play(self, history: History[StepT]) -> Failure[StepT] | None:
        """Plays one history alone; returns its failure, None if it passes."""
        (game,) = self._play(self._script.variant_of(history.number), [history])
        return game.failure

    def _groups(
        self, numbers: Sequence[int], seeds: Sequence[int]
    ) -> Iterator[tuple[Variant, list[History[StepT]]]]:
        """Histories that share a variant, at most so many as share a restart."""
        variants, size = self._script.variants, self._script.together_max
        for remainder, variant in enumerate(variants):
            members = [number for number in numbers if number % len(variants) == remainder]
            histories = [History[StepT](seed, number) for seed in seeds for number in members]
            for first in range(0, len(histories), size):
                yield variant, histories[first : first + size]

    def _play(self, variant: Variant, histories: Sequence[History[StepT]]) -> Sequence[Game[StepT]]:
        self._brokers.use(variant.settings)
        table = Table(str(next(self._labels)), variant, self._brokers.is_echoless)
        games = self._script.games(histories, table)
        asyncio.run(self._play_halves(variant, games))
        return games

    async def _play_halves(self, variant: Variant, games: Sequence[Game[StepT]]) -> None:
        await self._play_half(games, 0)
        if any(game.has_more for game in games):
            await self._brokers.restart(variant.restart)
            for game in games:
                game.restarted()
        await self._play_half(games, 1)

    async def _play_half(self, games: Sequence[Game[StepT]], half: int) -> None:
        async with self._brokers.sides(self._script.topics(games)) as sides:
            await self._script.wait_until_ready(sides)
            waiting = iter(games)
            async with asyncio.TaskGroup() as lanes:
                for _ in range(self._script.lanes):
                    lanes.create_task(_play_lane(waiting, sides, half))


async def _play_lane(waiting: Iterator[Game[StepT]], sides: Sides, half: int) -> None:
    for game in waiting:
        try:
            await game.play(sides, half)
        except MismatchError as mismatch:
            game.fail(mismatch)


@contextlib.contextmanager
def contest(script: Script[StepT], **options: Any) -> Iterator[Contest[StepT]]:
    """Both brokers, started; `options` are those of `Brokers`."""
    with Brokers(script, **options) as brokers:
        yield Contest(script, brokers)
