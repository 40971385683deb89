"""Producer ids: handed out one at a time from blocks that are claimed in the node tree.

The block node is Kafka's (`docs/protocol/producer-ids.md`), so brokers of both kinds can share it. A block is
claimed by read, decide, conditional write; on a lost race from the read again. When the answer to a
write is lost, another block is claimed: an unused block costs nothing, an id used twice
costs records.

The next block is claimed when half of the present one is used, so that `next_producer_id` has an id
at once. Ids that are left when the process ends are never used, nor are those that are left when a topic is deleted:
whatever is issued afterwards is no producer of that topic (`predecessors.py`). No block reaches into the range of
leased ids, which are other names of ids from these blocks (`protocol/leases.py`).

Invariant: no id is handed out twice, by any broker, ever. An id is handed out only from a block whose
claim this process saw succeed, and each block this process claims lies above all that it, an earlier
process on its data directory, or a broker that it can reach has seen (`seen_tree.py`); a node that went back
(deleted, restored from an old copy) stops the broker's ids instead of repeating them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from echoless.broker.metadata.old_copy import OldCopyError
from echoless.broker.metadata.producer_id_block import (
    PATH,
    PRODUCER_ID_MAX,
    ProducerIdBlock,
    ProducerIdBlockError,
    last_id_of,
)
from echoless.broker.metadata.seen_tree import SeenTree
from echoless.broker.tree.node_tree import (
    BadVersionError,
    ConnectionLostError,
    CoordinationError,
    Create,
    MultiFailedError,
    Node,
    NodeExistsError,
    NodeTree,
    NoNodeError,
    SetData,
)
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.leases import LEASED_ID_END, LEASED_ID_MIN

BLOCK_SIZE_DEFAULT: Final = 1000
CLAIM_ATTEMPTS_MAX: Final = 100
"""Rounds in one claim; each lost race means that another broker won a block."""
ANSWERS_LOST_MAX: Final = 3
"""Lost answers in one claim, before the client is asked to try again."""

_log = logging.getLogger(__name__)


Confirm = Callable[[int], Awaitable[None]]


async def _nobody_else(_last_id: int) -> None:
    """Does nothing: no other broker exists."""


class ProducerIds:
    """The ids of one broker. Used from one event loop."""

    def __init__(
        self,
        tree: NodeTree,
        broker_id: int,
        block_size: int = BLOCK_SIZE_DEFAULT,
        *,
        seen: SeenTree | None = None,
        confirm: Confirm = _nobody_else,
    ) -> None:
        """`seen`: what this broker has seen of the tree (None: nothing yet).

        `confirm` is awaited with the last id of a block before its first id is handed out: it has the other
        brokers note the block too, and raises `OldCopyError` if one of them has seen a newer tree.
        """
        if not 1 <= block_size <= PRODUCER_ID_MAX:
            raise ValueError(f"a block of {block_size} producer ids is not possible")
        self._tree = tree
        self._broker_id = broker_id
        self._block_size = block_size
        self._claim_interval = max(1, block_size // 20)
        self._next_id = 0
        """The next id of the present block. Invariant: <= `_end_id`; equal when it is used up."""
        self._end_id = 0
        """One above the last id of the present block."""
        self._next_block: ProducerIdBlock | None = None
        """Claimed ahead of need; becomes the present block when that is used up."""
        self._seen = SeenTree(tree, broker_id) if seen is None else seen
        self._confirm = confirm
        self._claim: asyncio.Task[None] | None = None
        """The newest claim; at most one is under way."""
        self._blocks_left = 0
        """Number of calls of `leave_block`."""
        self._failure: ProducerIdBlockError | None = None
        """Set once and for all: no further block is claimed."""

    async def start(self) -> None:
        """Claims the first block. Raises `CoordinationError`, in particular `ProducerIdBlockError`."""
        await self._claim_block()

    def next_producer_id(self) -> int | None:
        """An id that was never used; None if `wait_for_producer_id` has to be awaited."""
        if self._next_id == self._end_id:
            if self._next_block is None:
                return None
            self._next_id, self._end_id = self._next_block.start, self._next_block.end + 1
            self._next_block = None
        producer_id = self._next_id
        self._next_id += 1
        self._maybe_claim_ahead()
        return producer_id

    def leave_block(self) -> None:
        """Leaves the ids that are claimed unused: each one issued from now on is above every block of before.

        The next block is claimed when an id is asked for.
        """
        self._blocks_left += 1
        self._next_id = self._end_id
        self._next_block = None

    async def wait_for_producer_id(self) -> int:
        """An id that was never used, after claiming a block if need be.

        Raises `KafkaError` COORDINATOR_LOAD_IN_PROGRESS while no block can be claimed (retriable) and
        `ProducerIdBlockError` when none ever can.
        """
        try:
            while (producer_id := self.next_producer_id()) is None:
                await self._claim_block()
        except ProducerIdBlockError:
            raise
        except CoordinationError as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"cannot claim producer ids: {error}"
            ) from error
        return producer_id

    async def close(self) -> None:
        """Gives up a claim that is under way; its block is wasted."""
        if self._claim is not None and not self._claim.done():
            self._claim.cancel()
            await asyncio.wait([self._claim])

    def _maybe_claim_ahead(self) -> None:
        """Claims ahead of need. If a claim fails, the next comes some ids later: at most ten per block."""
        left = self._end_id - self._next_id
        is_due = left <= self._block_size // 2 and left % self._claim_interval == 0
        if is_due and self._next_block is None and self._failure is None:
            self._begin_claim()

    async def _claim_block(self) -> None:
        """Waits for the claim under way, or a new one. Its failure is that of all who wait for it."""
        if self._failure is not None:
            raise self._failure
        await asyncio.shield(self._begin_claim())

    def _begin_claim(self) -> asyncio.Task[None]:
        if self._claim is None or self._claim.done():
            self._claim = asyncio.get_running_loop().create_task(self._claim_until_won())
            self._claim.add_done_callback(_log_failure)
        return self._claim

    async def _claim_until_won(self) -> None:
        answers_lost = 0
        for _ in range(CLAIM_ATTEMPTS_MAX):
            try:
                left_before = self._blocks_left
                block = await self._try_claim()
                if left_before == self._blocks_left:
                    self._next_block = block
                    return
            except (BadVersionError, NodeExistsError, NoNodeError, MultiFailedError):
                continue  # a lost race: read again
            except ConnectionLostError:
                answers_lost += 1
                if answers_lost == ANSWERS_LOST_MAX:
                    raise
            except ProducerIdBlockError as error:
                self._failure = error
                raise
            except OldCopyError as error:
                self._failure = ProducerIdBlockError(str(error))
                raise self._failure from error
        raise CoordinationError(f"{CLAIM_ATTEMPTS_MAX} races for a block of producer ids were lost")

    async def _try_claim(self) -> ProducerIdBlock:
        reading = await self._seen.read()
        node, block = reading.block, self._block_after(reading.block)
        marks = self._seen.operations(reading)
        if marks:
            data = block.encode()
            claim = Create(PATH, data) if node is None else SetData(PATH, data, node.version)
            await self._tree.multi([claim, *marks])
        elif node is None:
            await self._tree.create(PATH, block.encode())
        else:
            await self._tree.write(PATH, block.encode(), node.version)
        await self._seen.noted(reading, block.end)
        await self._confirm(block.end)
        return block

    def _block_after(self, node: Node | None) -> ProducerIdBlock:
        """The block to claim next; the first one if the node is missing or holds no data."""
        last = last_id_of(node)
        if last > PRODUCER_ID_MAX - self._block_size:
            raise ProducerIdBlockError(
                f"producer ids are used up: the last block in {PATH} ends at {last}"
            )
        start = last + 1
        if start < LEASED_ID_END and start + self._block_size > LEASED_ID_MIN:
            start = LEASED_ID_END
        return ProducerIdBlock(self._broker_id, start, start + self._block_size - 1)


def _log_failure(claim: asyncio.Task[None]) -> None:
    """Logs the failure of a claim ahead of need, for which no one waits."""
    if claim.cancelled():
        return
    error = claim.exception()
    if isinstance(error, ProducerIdBlockError):
        _log.error("no more blocks of producer ids: %s", error)
    elif error is not None:
        _log.warning("cannot claim producer ids: %s", error)
