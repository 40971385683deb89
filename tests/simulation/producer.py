"""An idempotent producer: batches in order, some in flight, each resent until acknowledged.

A batch keeps its producer id, its sequences and its bytes under any leader. After an error nothing
new is sent until all that is in flight has its outcome; then everything without an acknowledgement
goes again, in order. So a leader that knows what was acknowledged has no reason to see a gap: a 45
or 59 to a batch whose predecessors are all acknowledged is spurious (with acks=all).

With acks=all, success for a batch is success for those before it on the connection that were answered with an error, as
with librdkafka (IMPLICITACK in its log). After a 6 that is a finding, unless another broker may have led meanwhile.

But now and then, as with librdkafka, batches overtake the one before them on the way to a new
leader. That leader cannot know what is still in transit from the old one, so a 45 or 59 is spurious
there, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from tests.simulation.clients import (
    NONE,
    REQUEST_TIMEOUT_S,
    RETRIABLE,
    Client,
    NoAnswerError,
    error_code,
)
from tests.simulation.connection import ClientConnection, Service
from tests.simulation.leads import Mark
from tests.simulation.observations import SentBatch, Spot
from tests.support.raw_batches import plain_batch

ACKS_ALL: Final = -1
IN_FLIGHT_MAX: Final = 5
NOT_LEADER: Final = 6
OUT_OF_ORDER: Final = 45
REPEAT: Final = 46
UNKNOWN_PRODUCER: Final = 59
GAPS: Final = frozenset({OUT_OF_ORDER, UNKNOWN_PRODUCER})
PRODUCE_TIMEOUT_MS: Final = 3000
OVERTAKES: Final = 0.5
"""How often batches are faster than the first one at a broker that the producer has never sent to."""


class Lane:
    """The batches of one producer for one partition."""

    def __init__(
        self,
        client: Client,
        spot: Spot,
        acks: int,
        plan: Sequence[SentBatch],
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self.spot = spot
        self.acks = acks
        self.is_done = not plan
        self.client = client
        self._in_flight_max = in_flight_max
        self._left = deque(plan)
        """Not acknowledged yet, in order."""
        self._producer_id = -1
        self._next_sequence = 0
        self._nodes: dict[str, None] = {}
        """Brokers that it has sent to."""

    def __repr__(self) -> str:
        return f"{self.client.name} for {self.spot}"

    def add(self, batches: Sequence[SentBatch]) -> None:
        """More to send."""
        self._left.extend(batches)
        if self.is_done:
            self.is_done = False
            self.client.process.spawn(self.run())

    async def run(self) -> None:
        """Runs until everything is acknowledged."""
        client = self.client
        while self._left:
            await self._until_ready(self._left[0])
            if self._producer_id < 0:
                await self._get_producer_id()
            node = await client.leader_of(self.spot)
            try:
                if self._may_overtake(node) and client.rng.random() < OVERTAKES:
                    await self._overtake(client.connection(node))
                is_fine = await self._send_round(client.connection(node))
            except NoAnswerError:
                is_fine = False
            if not is_fine:
                await client.back_off()
        self.is_done = True

    async def _until_ready(self, batch: SentBatch) -> None:
        wait_s = batch.ready_at - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _get_producer_id(self) -> None:
        client = self.client
        while True:
            answer = await client.ask_anyone({"type": "init_producer_id"})
            if error_code(answer) == NONE:
                break
            await client.back_off()
        self._producer_id = answer["producer_id"]
        self._next_sequence = 0

    async def _send_round(self, connection: ClientConnection) -> bool:
        """Sends and waits, as long as all goes well. False: something has to go again."""
        waiting: deque[tuple[SentBatch, asyncio.Future[dict[str, Any]], bool]] = deque()
        refused: list[SentBatch] = []
        begun = connection.service.leads.mark(self.spot)
        is_fine = True
        position = 0
        while True:
            while is_fine and len(waiting) < self._in_flight_max and self._is_ready(position):
                batch = self._left[position]
                waiting.append((batch, self._send(connection, batch), position == 0))
                position += 1
            if not waiting:
                return is_fine
            batch, future, is_first = waiting.popleft()
            try:
                answer = await self.client.answered(connection, future, REQUEST_TIMEOUT_S)
            except NoAnswerError:
                batch.attempts.append((self._now(), connection.service.node, None))
                raise
            if is_fine := self._judge(batch, answer, connection, is_first=is_first) and is_fine:
                position -= 1
            elif batch.acknowledged_at is None:
                refused.append(batch)
            elif self.acks == ACKS_ALL:
                self._take_implicit(refused, connection.service, begun)

    def _may_overtake(self, node: str) -> bool:
        """Whether batches are in transit to another broker, and none ever was to this one."""
        in_flight = [one for one in self._left if one.data]
        is_new = bool(self._nodes) and node not in self._nodes
        return is_new and len(in_flight) > 1 and self.acks == ACKS_ALL

    async def _overtake(self, connection: ClientConnection) -> None:
        """All that was in flight but for the first batch, which comes later."""
        _, *hasty = [one for one in self._left if one.data]
        answers = [(one, self._send(connection, one)) for one in hasty[: self._in_flight_max]]
        node = connection.service.node
        for batch, future in answers:
            answer = await self.client.answered(connection, future, REQUEST_TIMEOUT_S)
            self._judge(batch, answer, connection, is_first=False)
            if error_code(answer) in GAPS:
                self.client.observations.find(
                    f"hasty {error_code(answer)}: {self.client.name} batch {batch.number} (sequence "
                    f"{batch.base_sequence}) for {self.spot} at {node}, which has just taken over"
                )

    def _is_ready(self, position: int) -> bool:
        return position < len(self._left) and self._left[position].ready_at <= self._now()

    def _now(self) -> float:
        return self.client.process.loop.time()

    def _send(
        self, connection: ClientConnection, batch: SentBatch
    ) -> asyncio.Future[dict[str, Any]]:
        if not batch.data:
            self._give_identity(batch)
        self._nodes[connection.service.node] = None
        return connection.send(
            {
                "type": "produce",
                "topic": self.spot.topic,
                "partition": self.spot.partition,
                "acks": self.acks,
                "timeout_ms": PRODUCE_TIMEOUT_MS,
                "batch": batch.data,
            }
        )

    def _give_identity(self, batch: SentBatch) -> None:
        batch.producer_id = self._producer_id
        batch.base_sequence = self._next_sequence
        self._next_sequence += len(batch.values)
        batch.data = plain_batch(
            batch.values,
            keys=batch.keys,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            timestamp=1_795_000_000_000 + round(batch.ready_at * 1000),
        ).encode()
        batch.identities.append(batch.data)

    def _judge(
        self,
        batch: SentBatch,
        answer: dict[str, Any],
        connection: ClientConnection,
        *,
        is_first: bool,
    ) -> bool:
        """Whether the batch is acknowledged, and everything before it was."""
        code = error_code(answer)
        node = connection.service.node
        batch.attempts.append((self._now(), node, code))
        client = self.client
        client.observations.note(
            client.name, self.spot, "batch", batch.number, node, code, answer.get("base_offset")
        )
        if code in {NONE, REPEAT}:
            self._acknowledge(batch, answer["base_offset"] if code == NONE else -1)
            return True
        if code in GAPS:
            self._take_gap(batch, code, node, is_first=is_first)
        elif code not in RETRIABLE:
            client.observations.find(f"{client.name} got {answer['error']} from {node}")
        return False

    def _acknowledge(self, batch: SentBatch, offset: int) -> None:
        batch.acknowledged_at, batch.offset = self._now(), offset
        if batch in self._left:
            self._left.remove(batch)

    def _take_implicit(self, refused: list[SentBatch], service: Service, begun: Mark) -> None:
        """Takes the refused batches for stored, as a later one is that was sent over the connection since `begun`."""
        observations = self.client.observations
        for batch in refused:
            at, node, code = batch.attempts[-1]
            self._acknowledge(batch, -1)
            observations.more_counts[f"answered {code}, taken for stored"] += 1
            if code == NOT_LEADER and service.leads.leads_on(self.spot, begun):
                observations.find(
                    f"{self.client.name} batch {batch.number} for {self.spot} was refused with 6 at {at:.3f} by {node}, "
                    f"which leads on, and has stored the batch after it"
                )
        refused.clear()

    def _take_gap(self, batch: SentBatch, code: int, node: str, *, is_first: bool) -> None:
        """Handles a gap.

        With acks=1 acknowledged records may be lost, and a producer then starts over.
        """
        if self.acks != ACKS_ALL:
            self._producer_id = -1
            for left in self._left:
                left.data = b""
        elif is_first and batch is self._left[0]:
            client = self.client
            client.observations.find(
                f"spurious {code}: {client.name} batch {batch.number} (producer "
                f"{batch.producer_id}, sequence {batch.base_sequence}) for {self.spot} at {node}, "
                f"although all before it are acknowledged"
            )
