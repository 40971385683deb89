"""Plays one history to both brokers in step: a step follows when both have answered the same requests.

After each step the group is described twice by both. The second description is asked for when the first is answered,
so a broker that handles requests one by one has seen the step by then. What has not been answered is waited for
as long as the two brokers disagree about it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.group_oracle.differences import ENDS, explain, explain_only_ours, explain_states
from tests.group_oracle.messages import Plain
from tests.group_oracle.script import Client, Script
from tests.group_oracle.side import Side
from tests.group_oracle.steps import Step

KAFKA, ECHOLESS = 0, 1
_AGREE_S: Final = 12.0
_ASK_AGAIN_S: Final = 0.02
_HEARTBEAT_S: Final = 0.5
_CONNECTIONS: Final = 8
_EXPIRY_SHARE: Final = 0.08
_FIRST_LATE_S: Final = 1.5
"""A heartbeat later than this may have cost a session: the history is not judged."""


class MismatchError(Exception):
    """The two brokers differ without a name."""


@dataclass(slots=True)
class Played:
    """One history after it was played."""

    seed: int
    number: int
    lines: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """How often each named difference occurred."""
    answers_compared: int = 0
    expiries: int = 0
    failure: str = ""
    was_slow: bool = False
    """A session may have ended because this machine is slow; nothing was judged."""


class Player:
    """One history, in two halves with a restart of both brokers between them."""

    def __init__(self, seed: int, number: int, label: str) -> None:
        self.played = Played(seed, number)
        choices = random.Random(f"{seed} {number}")
        self._choices = choices
        self.is_mortal = choices.random() < 0.4
        self.script = Script(f"g-{label}-{number}", choices, is_mortal=self.is_mortal)
        self._sides: Sequence[Side] = ()
        self._steps: dict[int, Step] = {}
        self._compared: set[int] = set()
        self._is_over = False
        self._beaten = 0.0
        self._described: Plain = None

    async def play(self, addresses: tuple[str, str], steps: int) -> None:
        """Play so many steps; a failure, or a difference that divides the two groups, ends the history."""
        if self._is_over:
            return
        self._sides = [Side(address) for address in addresses]
        for side, old in zip(self._sides, getattr(self, "_before", ()), strict=False):
            side.inherit(old)
        for side in self._sides:
            await side.open(_CONNECTIONS)
        self._beaten = time.monotonic()
        beating = asyncio.create_task(self._beat())
        try:
            await self._agree("at the beginning")
            for _ in range(steps):
                if self._is_over:
                    break
                await self._step()
        except MismatchError as mismatch:
            self._is_over = True
            self.played.failure = str(mismatch)
        finally:
            beating.cancel()
            for side in self._sides:
                await side.close()
            self._before = self._sides

    def restarted(self) -> None:
        """Forget what was under way. A group that was rebalancing may differ from now on: the history ends."""
        self._is_over |= self.is_mortal or self._state not in {"Stable", "Empty", "Dead"}
        self._steps = {}
        for client in self.script.clients:
            if client.is_pending:
                client.member, client.is_pending = "", False
            if client.waits_for is not None:
                client.waits_for, client.must_join = None, True

    @property
    def _state(self) -> str:
        """The state of the group when both described it alike the last time."""
        return str(self._described["groups"][0]["group_state"]) if self._described else ""

    async def _step(self) -> None:
        mortals = [one for one in self.script.clients if self._can_expire(one)]
        if any(one.is_pending for one in self.script.clients):
            mortals = []  # an id that was given expires, too, if no one joins with it meanwhile
        if self.is_mortal and mortals and self._choices.random() < _EXPIRY_SHARE:
            await self._expire(self._choices.choice(mortals))
            return
        step = self.script.next()
        self._steps[step.number] = step
        self.played.lines.append(str(step))
        for side in self._sides:
            side.ask(step)
        await self._agree(str(step))

    def _can_expire(self, client: Client) -> bool:
        members = self._described["groups"][0]["members"] if self._described else []
        is_member = any(one["member_id"] == client.member for one in members)
        return is_member and client.waits_for is None

    async def _expire(self, client: Client) -> None:
        """One member falls silent until both have forgotten it."""
        self.played.lines.append(f"-- {client.name} is silent --")
        client.is_silent = True
        gone = client.member
        deadline = time.monotonic() + _AGREE_S
        while any(one["member_id"] == gone for one in self._described["groups"][0]["members"]):
            if time.monotonic() > deadline:
                self._complain(
                    f"{client.name} is not forgotten", [self._described] * 2, [set(), set()]
                )
            await self._agree(f"while {client.name} is silent")
            if self._is_over:
                return
        self.played.expiries += 1
        client.is_silent = False

    async def _beat(self) -> None:
        """Keep every other member alive."""
        number = -1
        while True:
            if time.monotonic() - self._beaten > _FIRST_LATE_S:
                self.played.was_slow = self.is_mortal
            self._beaten = time.monotonic()
            for client in self.script.clients:
                if client.member and not client.is_silent and not client.is_pending:
                    values = {
                        "group_id": self.script.group,
                        "generation_id": client.generation,
                        "member_id": client.member,
                        "group_instance_id": client.instance,
                    }
                    step = Step(
                        number=number, client="beat", api="heartbeat", version=4, values=values
                    )
                    for side in self._sides:
                        side.ask(step)
                    number -= 1
            await asyncio.sleep(_HEARTBEAT_S)

    async def _agree(self, when: str) -> None:
        """Wait until both describe the group alike and have answered the same requests; then compare these."""
        deadline = time.monotonic() + _AGREE_S
        while True:
            described = [await self._describe(side) for side in self._sides]
            answered = [side.responses.keys() & self._steps.keys() for side in self._sides]
            if self._go_separate_ways(answered, described):
                return
            is_equal = (
                answered[KAFKA] == answered[ECHOLESS]
            )  # so every id has its name on both sides
            if (is_equal and self._differ(answered)) or time.monotonic() > deadline:
                self._complain(when, described, answered)
            if is_equal and described[KAFKA] == described[ECHOLESS]:
                break
            await asyncio.sleep(_ASK_AGAIN_S)
        self._described = described[ECHOLESS]
        for number in sorted(answered[KAFKA] - self._compared):
            self._compare(self._steps[number])

    def _new_answers(self, answered: Sequence[set[int]]) -> Iterator[tuple[Step, Plain, Plain]]:
        """Yield what has not been compared yet; None where only Kafka has answered."""
        for number in sorted(answered[KAFKA] - self._compared):
            ours = self._sides[ECHOLESS].answer(number) if number in answered[ECHOLESS] else None
            yield self._steps[number], self._sides[KAFKA].answer(number), ours

    def _go_separate_ways(self, answered: Sequence[set[int]], described: Sequence[Plain]) -> bool:
        """Whether something differs for a named reason after which the groups cannot be compared any more."""
        name = self._named_end(answered, described)
        if name:
            self._count(name)
            self._is_over = True
        return bool(name)

    def _named_end(self, answered: Sequence[set[int]], described: Sequence[Plain]) -> str:
        states = [str(one["groups"][0]["group_state"]) for one in described]
        last = self._steps[max(self._steps)] if self._steps else None
        if name := explain_states(last, *states):
            return name
        for number in answered[ECHOLESS] - answered[KAFKA]:
            echoless = self._sides[ECHOLESS].answer(number)
            if name := explain_only_ours(self._steps[number], echoless, last):
                return name
        is_equal = answered[KAFKA] == answered[ECHOLESS]
        for step, kafka, echoless in self._new_answers(answered):
            if not is_equal and echoless is not None:
                continue
            if kafka != echoless and (name := self._explain(step, kafka, echoless)) in ENDS:
                return name
        return ""

    def _explain(self, step: Step, kafka: Plain, echoless: Plain) -> str:
        first_joins = {one.member for one in self.script.clients if one.is_in_first_join}
        return explain(step, kafka, echoless, state=self._state, first_joins=first_joins)

    def _differ(self, answered: Sequence[set[int]]) -> bool:
        """Whether two answers differ without a name: no waiting will change that."""
        return any(
            echoless not in (kafka, None) and not self._explain(step, kafka, echoless)
            for step, kafka, echoless in self._new_answers(answered)
        )

    async def _describe(self, side: Side) -> Plain:
        for _ in range(2):
            step = self.script.describe()
            side.ask(step)
            answer = await side.answered(step)
        return answer

    def _compare(self, step: Step) -> None:
        kafka, echoless = (side.answer(step.number) for side in self._sides)
        self._compared.add(step.number)
        self.played.answers_compared += 1
        self.played.lines.append(f"     {step.number} -> {echoless}")
        if kafka != echoless:
            self._count(self._explain(step, kafka, echoless))
        self.script.heard(step, echoless)

    def _count(self, name: str) -> None:
        self.played.counts[name] += 1
        self.played.lines.append(f"     differs: {name}")

    def _complain(
        self, when: str, described: Sequence[Plain], answered: Sequence[set[int]]
    ) -> None:
        lines = [f"history {self.played.number} of seed {self.played.seed}: {when}"]
        lines += self.played.lines[-60:]
        for step, kafka, echoless in self._new_answers(answered):
            if kafka != echoless:
                lines.append(f"  {step.number} -> kafka    {kafka}\n    -> echoless {echoless}")
        for number in answered[ECHOLESS] - answered[KAFKA]:
            lines.append(f"  {number} -> echoless {self._sides[ECHOLESS].answer(number)}")
        if described[KAFKA] != described[ECHOLESS]:
            lines += [f"  kafka    {described[KAFKA]}", f"  echoless {described[ECHOLESS]}"]
        raise MismatchError("\n".join(lines))
