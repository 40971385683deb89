"""Plays one history to both brokers in step: a step follows when both have answered the same requests.

After each step the group is described twice by both. The second description is asked for when the first is answered,
so a broker that handles requests one by one has seen the step by then. What has not been answered is waited for
as long as the two brokers disagree about it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tests.oracle.game import ANSWERS, ECHOLESS, KAFKA, MismatchError, SteppedGame
from tests.oracle.groups.asker import GroupAsker
from tests.oracle.groups.chooser import Chooser, Client
from tests.oracle.groups.differences import ENDS, explain, explain_only_ours, explain_states
from tests.oracle.groups.step import Request, Silence, Step
from tests.oracle.messages import Plain, renamed
from tests.oracle.script import History
from tests.oracle.side import Sides

EXPIRIES: Final = "members forgotten"
TOO_SLOW: Final = "too slow to judge"
_AGREE_S: Final = 60.0
_ASK_AGAIN_S: Final = 0.02
_HEARTBEAT_S: Final = 0.5
_CONNECTIONS: Final = 8
_EXPIRY_SHARE: Final = 0.08
_FIRST_LATE_S: Final = 1.5
"""A heartbeat later than this may have cost a session: the history is not judged."""


class GroupsGame(SteppedGame[Step]):
    """One group and its clients."""

    ends = ENDS
    steps = (40, 15)

    def __init__(self, history: History[Step], label: str) -> None:
        super().__init__(history.seed, history.number, history.recorded)
        choices = random.Random(f"{history.seed} {history.number}")
        self._choices = choices
        self._is_mortal = choices.random() < 0.4
        group = f"g-{label}-{history.seed}-{history.number}"
        self._chooser = Chooser(group, choices, is_mortal=self._is_mortal)
        if history.recorded is not None:
            # Descriptions are numbered between the steps: behind those that are there.
            steps = [step for half in history.recorded for step in half]
            numbers = [step.number for step in steps if isinstance(step, Request)]
            self._chooser.number = max(numbers, default=0)
        self._askers: Sequence[GroupAsker] = ()
        self._requests: dict[int, Request] = {}
        self._compared: set[int] = set()
        self._beaten = 0.0
        self._beating: asyncio.Task[None] | None = None
        self._described: Plain = None

    async def open(self, sides: Sides) -> None:
        before, self._askers = self._askers, [GroupAsker(side) for side in sides]
        for asker, old in zip(self._askers, before, strict=False):
            asker.inherit(old)
        for asker in self._askers:
            await asker.open(_CONNECTIONS)
        self._beaten = time.monotonic()
        self._beating = asyncio.create_task(self._beat())
        await self._agree()

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        for asker in self._askers:
            await asker.close()

    def restarted(self) -> None:
        """Forgets what was under way. A group that was rebalancing may differ from now on: the history ends."""
        super().restarted()
        self.is_over |= self._is_mortal or self._state not in {"Stable", "Empty", "Dead"}
        self._requests = {}
        for client in self._chooser.clients:
            if client.is_pending:
                client.member, client.is_pending = "", False
            if client.waits_for is not None:
                client.waits_for, client.must_join = None, True

    @property
    def _state(self) -> str:
        """The state of the group when both described it alike the last time."""
        return str(self._described["groups"][0]["group_state"]) if self._described else ""

    def adopt(self, step: Step) -> Step:
        if isinstance(step, Silence):
            return step
        group = step.values["group_id"]
        return replace(step, values=renamed(step.values, group, self._chooser.group))

    def choose(self) -> Step:
        mortals = [one for one in self._chooser.clients if self._can_expire(one)]
        if any(one.is_pending for one in self._chooser.clients):
            mortals = []  # an id that was given expires, too, if no one joins with it meanwhile
        if self._is_mortal and mortals and self._choices.random() < _EXPIRY_SHARE:
            return Silence(client=self._choices.choice(mortals).name)
        return self._chooser.next()

    def _can_expire(self, client: Client) -> bool:
        return self._is_member(client.member) and client.waits_for is None

    def _is_member(self, member: str) -> bool:
        members = self._described["groups"][0]["members"] if self._described else []
        return any(one["member_id"] == member for one in members)

    async def take(self, step: Step) -> None:
        if isinstance(step, Silence):
            await self._expire(step)
            return
        self._chooser.asked(step)
        self._requests[step.number] = step
        for asker in self._askers:
            asker.ask(step)
        await self._agree()

    async def _expire(self, step: Silence) -> None:
        """One member falls silent until both have forgotten it."""
        (client,) = (one for one in self._chooser.clients if one.name == step.client)
        client.is_silent = True
        gone = client.member
        deadline = time.monotonic() + _AGREE_S
        while self._is_member(gone):
            if time.monotonic() > deadline:
                raise MismatchError(f"{client.name} is not forgotten", f"  {self._described}")
            await self._agree()
            if self.is_over:
                return
        self.figures[EXPIRIES] += 1
        client.is_silent = False

    async def _beat(self) -> None:
        """Keep every other member alive."""
        number = -1
        while True:
            if time.monotonic() - self._beaten > _FIRST_LATE_S:
                self.unjudged = TOO_SLOW if self._is_mortal else ""
            self._beaten = time.monotonic()
            for client in self._chooser.clients:
                if client.member and not client.is_silent and not client.is_pending:
                    values = {
                        "group_id": self._chooser.group,
                        "generation_id": client.generation,
                        "member_id": client.member,
                        "group_instance_id": client.instance,
                    }
                    step = Request(
                        number=number, client="beat", api="heartbeat", version=4, values=values
                    )
                    for asker in self._askers:
                        asker.ask(step)
                    number -= 1
            await asyncio.sleep(_HEARTBEAT_S)

    async def _agree(self) -> None:
        """Waits until both describe the group alike and have answered the same requests; then compares these."""
        deadline = time.monotonic() + _AGREE_S
        while True:
            described = [await self._describe(asker) for asker in self._askers]
            answered = [asker.responses.keys() & self._requests.keys() for asker in self._askers]
            if self._go_separate_ways(answered, described):
                return
            is_equal = (
                answered[KAFKA] == answered[ECHOLESS]
            )  # so every id has its name on both sides
            if (is_equal and self._differ(answered)) or time.monotonic() > deadline:
                self._complain(described, answered)
            if is_equal and described[KAFKA] == described[ECHOLESS]:
                break
            await asyncio.sleep(_ASK_AGAIN_S)
        self._described = described[ECHOLESS]
        for number in sorted(answered[KAFKA] - self._compared):
            self._compare(self._requests[number])

    def _new_answers(self, answered: Sequence[set[int]]) -> Iterator[tuple[Request, Plain, Plain]]:
        """Yield what has not been compared yet; None where only Kafka has answered."""
        for number in sorted(answered[KAFKA] - self._compared):
            ours = self._askers[ECHOLESS].answer(number) if number in answered[ECHOLESS] else None
            yield self._requests[number], self._askers[KAFKA].answer(number), ours

    def _go_separate_ways(self, answered: Sequence[set[int]], described: Sequence[Plain]) -> bool:
        """Whether something differs for a named reason after which the groups cannot be compared any more."""
        name = self._named_end(answered, described)
        if name:
            self.differs(name)
        return bool(name)

    def _named_end(self, answered: Sequence[set[int]], described: Sequence[Plain]) -> str:
        states = [str(one["groups"][0]["group_state"]) for one in described]
        last = self._requests[max(self._requests)] if self._requests else None
        if name := explain_states(last, *states):
            return name
        for number in answered[ECHOLESS] - answered[KAFKA]:
            echoless = self._askers[ECHOLESS].answer(number)
            if name := explain_only_ours(self._requests[number], echoless, last):
                return name
        is_equal = answered[KAFKA] == answered[ECHOLESS]
        for step, kafka, echoless in self._new_answers(answered):
            if not is_equal and echoless is not None:
                continue
            if kafka != echoless and (name := self._explain(step, kafka, echoless)) in ENDS:
                return name
        return ""

    def _explain(self, step: Request, kafka: Plain, echoless: Plain) -> str:
        first_joins = {one.member for one in self._chooser.clients if one.is_in_first_join}
        return explain(step, kafka, echoless, state=self._state, first_joins=first_joins)

    def _differ(self, answered: Sequence[set[int]]) -> bool:
        """Whether two answers differ without a name: no waiting will change that."""
        return any(
            echoless not in (kafka, None) and not self._explain(step, kafka, echoless)
            for step, kafka, echoless in self._new_answers(answered)
        )

    async def _describe(self, asker: GroupAsker) -> Plain:
        for _ in range(2):
            step = self._chooser.describe()
            asker.ask(step)
            answer = await asker.answered(step)
        return answer

    def _compare(self, step: Request) -> None:
        kafka, echoless = (asker.answer(step.number) for asker in self._askers)
        self._compared.add(step.number)
        self.figures[ANSWERS] += 1
        self.lines.append(f"     {step.number} -> {echoless}")
        if kafka != echoless:
            self.differs(self._explain(step, kafka, echoless))
        self._chooser.heard(step, echoless)

    def _complain(self, described: Sequence[Plain], answered: Sequence[set[int]]) -> None:
        lines = []
        for step, kafka, echoless in self._new_answers(answered):
            if kafka != echoless:
                lines.append(f"  {step.number} -> kafka    {kafka}\n    -> echoless {echoless}")
        lines += [
            f"  {number} -> echoless {self._askers[ECHOLESS].answer(number)}"
            for number in answered[ECHOLESS] - answered[KAFKA]
        ]
        if described[KAFKA] != described[ECHOLESS]:
            lines += [f"  kafka    {described[KAFKA]}", f"  echoless {described[ECHOLESS]}"]
        raise MismatchError("the brokers do not agree after the last step", *lines)
