"""Plays one history to both brokers, one request after the other, and compares every answer and the states after it."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Final

from tests.oracle.game import ANSWERS, MismatchError, SteppedGame
from tests.oracle.messages import Plain
from tests.oracle.script import History
from tests.oracle.side import Sides
from tests.oracle.transactions.answers import first_code
from tests.oracle.transactions.asker import TransactionAsker
from tests.oracle.transactions.chooser import Chooser
from tests.oracle.transactions.differences import (
    ENDS,
    Ended,
    Place,
    Stream,
    ended_by,
    explain,
    stream_of,
)
from tests.oracle.transactions.requests import SHORT_MS, Versions
from tests.oracle.transactions.step import CLOSED, READ, READING, TIME_OUT, TOPIC, Request

TIME_OUTS: Final = "transactions timed out"
WHOLE_READS: Final = "whole reads"
TOO_SLOW: Final = "too slow to judge"
_AGREE_S: Final = 5.0
_PAUSE_S: Final = 0.02
_LATE_S: Final = SHORT_MS / 1000 * 0.6
"""A transaction that has been open for so long may time out before the step that waits for it."""


class TransactionsGame(SteppedGame[Request]):
    """Two transactional ids, with a topic and groups of their own."""

    ends = ENDS
    steps = (45, 25)

    def __init__(
        self, history: History[Request], label: str, versions: Versions, *, is_kafka_4: bool
    ) -> None:
        super().__init__(history.seed, history.number, history.recorded)
        self.prefix = f"x-{label}-{history.seed}-{history.number}-"
        self._chooser = Chooser(random.Random(f"{history.seed} {history.number}"), versions)
        self._is_kafka_4 = is_kafka_4
        self._first = 0
        self._askers: list[TransactionAsker] = []
        self._states: dict[str, Any] = {}
        self._ended: dict[str, Ended] = {}
        self._attempts: dict[Stream, int] = {}
        self._refused_offsets: set[tuple[str, int]] = set()
        self._stored: set[tuple[int, int]] = set()
        """Partitions and base offsets of batches."""
        self._opened: dict[str, float] = {}
        """When the transactions that may time out were opened."""
        self._is_after_restart = False

    @property
    def topic(self) -> str:
        return self.prefix + TOPIC

    async def open(self, sides: Sides) -> None:
        if not self._askers:
            self._askers = [TransactionAsker(side, self.prefix) for side in sides]
        for asker, side in zip(self._askers, sides, strict=True):
            asker.open(side, self._first)
        await self._compare_states("before the first step")

    async def close(self) -> None:
        for asker in self._askers:
            await asker.close()

    def restarted(self) -> None:
        super().restarted()
        self._first = self._chooser.restarted()
        self._is_after_restart = True
        if self._opened:
            self.is_over = True  # its time has gone on, and in Kafka and here from another start

    def adopt(self, step: Request) -> Request:
        return step

    def choose(self) -> Request:
        half = 1 if self._is_after_restart else 0
        return self._chooser.next(is_last=len(self.played[half]) == self.steps[half] - 1)

    async def take(self, step: Request) -> None:
        begun = time.monotonic()
        kafka, echoless = _alike(step, *await self._ask(step))
        self.lines.append(f"     -> {echoless}")
        self.figures[ANSWERS] += 1
        self.figures[TIME_OUTS] += step.api == TIME_OUT
        self.figures[WHOLE_READS] += step.api == READ
        before = self._states
        theirs, ours = [await asker.settled() for asker in self._askers]
        if step.api != TIME_OUT and self._is_late(begun):
            self.unjudged, self.is_over = TOO_SLOW, True
            return
        self._note_open(ours, begun)
        self._chooser.heard(step, echoless, ours)
        place = Place(
            step,
            before,
            dict(self._ended),
            dict(self._attempts),
            self._refused_offsets,
            self._is_repeat(step, echoless),
            self._is_kafka_4,
            self._is_after_restart,
        )
        self._note_batch(step, echoless)
        self._states = ours
        self._ended |= ended_by(step, before, ours)
        if (kafka, theirs) == (echoless, ours):
            return
        found = explain(place, kafka, echoless)
        if not found:
            details = _details((kafka, echoless), (theirs, ours))
            raise MismatchError("the brokers differ after the last step", *details)
        self.differs(found)
        self.is_over |= theirs != ours

    async def _ask(self, step: Request) -> list[Plain]:
        """The answers of both; what only reads is asked again until they are equal, or for a while."""
        end = time.monotonic() + _AGREE_S
        while True:
            answers = [await asker.ask(step) for asker in self._askers]
            kafka, echoless = _alike(step, *answers)
            if kafka == echoless or step.api not in READING or time.monotonic() > end:
                return answers
            await asyncio.sleep(_PAUSE_S)

    def _is_repeat(self, step: Request, answer: Plain) -> bool:
        is_produced = step.api == "produce" and answer != CLOSED
        return is_produced and _place_of(answer) in self._stored

    def _note_batch(self, step: Request, answer: Plain) -> None:
        """Notes a batch that was appended, or that one was not."""
        if step.api == "txn_offset_commit" and first_code(step, answer) == 47:
            rows = step.values["topics"][0]["partitions"]
            group = step.values["group_id"]
            self._refused_offsets |= {(group, row["partition_index"]) for row in rows}
        if step.api != "produce" or answer == CLOSED:
            return
        stream, sequence = stream_of(step), step.values["rows"][0]["sequence"]
        if first_code(step, answer) or self._is_repeat(step, answer):
            self._attempts[stream] = min(sequence, self._attempts.get(stream, sequence))
        else:
            self._attempts.pop(stream, None)
            self._stored.add(_place_of(answer))

    async def _compare_states(self, when: str) -> None:
        theirs, ours = [await asker.settled() for asker in self._askers]
        if theirs != ours:
            raise MismatchError(f"the states differ {when}", *_details((theirs, ours)))
        self._states = ours

    def _note_open(self, states: dict[str, Any], begun: float) -> None:
        for name, row in states.items():
            if row["state"] == "Ongoing" and row["timeout"] == SHORT_MS:
                self._opened.setdefault(name, begun)
            else:
                self._opened.pop(name, None)

    def _is_late(self, begun: float) -> bool:
        """Whether a transaction may have timed out in a step that began then."""
        mortal = [row for row in self._states.values() if row["timeout"] == SHORT_MS]
        times = [*self._opened.values(), begun] if mortal else self._opened.values()
        return any(time.monotonic() - since > _LATE_S for since in times)


def _alike(step: Request, kafka: Plain, echoless: Plain) -> tuple[Plain, Plain]:
    """Both answers; of a single fetch as many batches as both have, for segments may end at other batches."""
    if step.api != "fetch" or "batches" not in kafka or "batches" not in echoless:
        return kafka, echoless
    count = min(len(kafka["batches"]), len(echoless["batches"]))
    return _cut(kafka, count), _cut(echoless, count)


def _cut(answer: Plain, count: int) -> Plain:
    batches = answer["batches"][:count]
    end = batches[-1][0] if batches else -1
    aborted = answer["aborted"] and [one for one in answer["aborted"] if one[1] <= end]
    return {**answer, "end": end, "batches": batches, "aborted": aborted}


def _place_of(answer: Plain) -> tuple[int, int]:
    return answer[0]["partition"], answer[0]["base_offset"]


def _details(*pairs: tuple[Plain, Plain]) -> list[str]:
    """Both sides of each pair; of mappings what is unequal in them."""
    lines: list[str] = []
    for kafka, echoless in pairs:
        if (
            isinstance(kafka, dict)
            and isinstance(echoless, dict)
            and kafka.keys() == echoless.keys()
        ):
            lines += [
                f"  {key}\n  kafka    {kafka[key]}\n  echoless {echoless[key]}"
                for key in kafka
                if kafka[key] != echoless[key]
            ]
        elif kafka != echoless:
            lines.append(f"  kafka    {kafka}\n  echoless {echoless}")
    return lines
