"""Plays one history to both brokers, one request after the other, and compares every answer."""

from __future__ import annotations

import random
from typing import Any, Final

from tests.oracle.game import ANSWERS, MismatchError, SteppedGame
from tests.oracle.script import History
from tests.oracle.sessions.asker import SessionAsker
from tests.oracle.sessions.chooser import Chooser
from tests.oracle.sessions.step import MAIN, Step
from tests.oracle.side import Sides

FETCHED: Final = "partitions in answers"


class SessionsGame(SteppedGame[Step]):
    """Three sessions of one client, on topics of its own."""

    ends: frozenset[str] = frozenset()
    steps = (60, 12)

    def __init__(self, history: History[Step], label: str) -> None:
        super().__init__(history.seed, history.number, history.recorded)
        self.prefix = f"s-{label}-{history.seed}-{history.number}-"
        self._chooser = Chooser(random.Random(f"{history.seed} {history.number}"))
        self._askers: list[SessionAsker] = []

    @property
    def topic(self) -> str:
        """The topic that is there from the start."""
        return self.prefix + MAIN

    async def open(self, sides: Sides) -> None:
        if not self._askers:
            self._askers = [SessionAsker(side, self.prefix) for side in sides]
        for asker, side in zip(self._askers, sides, strict=True):
            await asker.open(side)

    async def close(self) -> None:
        for asker in self._askers:
            asker.release()

    def adopt(self, step: Step) -> Step:
        return step

    def choose(self) -> Step:
        return self._chooser.next()

    async def take(self, step: Step) -> None:
        kafka, echoless = [await asker.ask(step) for asker in self._askers]
        self.lines.append(f"     -> {echoless}")
        self.figures[ANSWERS] += 1
        if isinstance(echoless, dict):
            self.figures[FETCHED] += len(echoless["rows"])
        if kafka != echoless:
            raise MismatchError("the answers differ", *_details(kafka, echoless))


def _details(kafka: Any, echoless: Any) -> list[str]:
    return [f"  kafka    {kafka}", f"  echoless {echoless}"]
