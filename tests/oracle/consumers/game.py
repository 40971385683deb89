"""Plays one history to both brokers, one request after the other, and compares every answer and every description."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.oracle.consumers.asker import ConsumerAsker, Partitions
from tests.oracle.consumers.chooser import JOINS, Chooser, Step
from tests.oracle.consumers.differences import ENDS, explain
from tests.oracle.game import ANSWERS, MismatchError, SteppedGame
from tests.oracle.messages import renamed
from tests.oracle.script import History
from tests.oracle.side import Sides


class ConsumersGame(SteppedGame[Step]):
    """One group and its clients."""

    ends = ENDS
    steps = (40, 40)

    def __init__(self, history: History[Step], label: str) -> None:
        super().__init__(history.seed, history.number, history.recorded)
        group = f"c-{label}-{history.seed}-{history.number}"
        self._chooser = Chooser(group, random.Random(f"{history.seed} {history.number}"))
        self._owned: tuple[dict[str, Partitions], ...] = ({}, {})
        self._askers: Sequence[ConsumerAsker] = ()
        self._members: list[Any] = []
        """As described after the last step that both answered alike."""

    async def open(self, sides: Sides) -> None:
        self._askers = [
            ConsumerAsker(side, await side.borrow(), owned)
            for side, owned in zip(sides, self._owned, strict=True)
        ]

    async def close(self) -> None:
        for asker in self._askers:
            asker.release()

    def adopt(self, step: Step) -> Step:
        group = step.values["group_id"]
        return replace(step, values=renamed(step.values, group, self._chooser.group))

    def choose(self) -> Step:
        return self._chooser.next()

    async def take(self, step: Step) -> None:
        kafka, echoless = [await asker.ask(step) for asker in self._askers]
        self.lines.append(f"     -> {echoless}")
        description = self._chooser.describe()
        theirs, ours = [await asker.ask(description) for asker in self._askers]
        self.figures[ANSWERS] += 2
        self._heard(step, echoless)
        if kafka == echoless and theirs == ours:
            self._members = ours["groups"][0]["members"]
            return
        found = explain(step, kafka, echoless, (theirs, ours), self._members)
        if not found:
            pairs = [pair for pair in ((kafka, echoless), (theirs, ours)) if pair[0] != pair[1]]
            details = [f"  kafka    {pair[0]}\n  echoless {pair[1]}" for pair in pairs]
            raise MismatchError("the brokers differ after the last step", *details)
        self.differs(found)

    def _heard(self, step: Step, answer: Any) -> None:
        """Lets the client that asked know of the answer."""
        client = next((one for one in self._chooser.clients if one.name == step.client), None)
        is_its_own = client is not None and step.values.get("member_id") == client.member
        if client is None or step.api != "consumer_group_heartbeat" or not is_its_own:
            return
        if answer["error_code"] == 0 and answer["member_epoch"] >= JOINS:
            client.epoch = answer["member_epoch"]
        elif not step.is_odd and answer["error_code"]:
            for asker in self._askers:
                asker.owned.pop(client.member, None)
            client.restart()
