"""One history while it is played: half before, half after a restart of both brokers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final, Generic, NamedTuple, TypeVar

from tests.oracle.side import Sides

StepT = TypeVar("StepT")
Halves = tuple[list[StepT], list[StepT]]
"""The steps before and after the restart."""
KAFKA, ECHOLESS = 0, 1
"""Places in a pair of anything that both brokers have."""
ANSWERS: Final = "answers compared"
_LINES_SHOWN: Final = 150


class MismatchError(Exception):
    """The brokers, or a broker and its model, disagree, and no named difference says why."""

    def __init__(self, reason: str, *details: str) -> None:
        super().__init__(reason)
        self.details = details
        """Lines for the end of the transcript."""


class Failure(NamedTuple, Generic[StepT]):
    """One history in which something differed without a name."""

    seed: int
    number: int
    steps: Halves[StepT]
    """The steps up to the one that failed, itself included."""
    transcript: str

    def __str__(self) -> str:
        return self.transcript


class Game(ABC, Generic[StepT]):
    """One history with all that was found in it."""

    def __init__(self, seed: int, number: int) -> None:
        self.seed = seed
        self.number = number
        self.counts: Counter[str] = Counter()
        """How often each named difference was the reason for unequal answers."""
        self.figures: Counter[str] = Counter()
        self.lines: list[str] = []
        """The transcript."""
        self.played: Halves[StepT] = ([], [])
        self.is_over = False
        self.failure: Failure[StepT] | None = None
        self.unjudged = ""
        """Why nothing of it counts; "" if it does."""

    @property
    @abstractmethod
    def has_more(self) -> bool:
        """Whether there are steps to play after the restart."""

    @abstractmethod
    async def play(self, sides: Sides, half: int) -> None:
        """Plays a half to both brokers and compares. Raises MismatchError at the first difference without a name."""

    def restarted(self) -> None:
        """Both brokers were stopped and started."""
        self.lines.append("  --- restart ---")

    def fail(self, mismatch: MismatchError) -> None:
        """Ends the history with a failure."""
        self.is_over = True
        head = f"history {self.number} of seed {self.seed}: {mismatch}"
        lines = [head, *self.lines[-_LINES_SHOWN:], *mismatch.details]
        self.failure = Failure(self.seed, self.number, self.played, "\n".join(lines))


class SteppedGame(Game[StepT]):
    """A history in which the answers so far decide what is asked next."""

    ends: AbstractSet[str]
    """Differences after which the two sides cannot be compared any more."""
    steps: tuple[int, int]
    """Steps before and after the restart."""

    def __init__(self, seed: int, number: int, recorded: Halves[StepT] | None) -> None:
        super().__init__(seed, number)
        self._recorded = recorded

    @property
    def has_more(self) -> bool:
        return not self.is_over and (self._recorded is None or bool(self._recorded[1]))

    async def play(self, sides: Sides, half: int) -> None:
        if self.is_over:
            return
        try:
            await self.open(sides)
            for step in self._steps(half):
                self.lines.append(f"  {step}")
                self.played[half].append(step)
                await self.take(step)
                if self.is_over:
                    break
        finally:
            await self.close()

    def _steps(self, half: int) -> Iterator[StepT]:
        if self._recorded is not None:
            yield from map(self.adopt, self._recorded[half])
            return
        for _ in range(self.steps[half]):
            yield self.choose()

    def differs(self, name: str) -> None:
        """Counts a named difference, which may end the history."""
        self.counts[name] += 1
        self.lines.append(f"     differs: {name}")
        self.is_over |= name in self.ends

    @abstractmethod
    def adopt(self, step: StepT) -> StepT:
        """Makes a step that was recorded in another run one about this game's own names."""

    @abstractmethod
    def choose(self) -> StepT:
        """Chooses the next step."""

    @abstractmethod
    async def open(self, sides: Sides) -> None:
        """Prepares to ask both brokers."""

    @abstractmethod
    async def take(self, step: StepT) -> None:
        """Plays one step to both, and compares."""

    @abstractmethod
    async def close(self) -> None:
        """Ends what is left of this half, whatever has happened in it."""
