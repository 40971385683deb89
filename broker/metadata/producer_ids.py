"""Producer ids: handed out one at a time from blocks that are claimed in the node tree.

The block node is Kafka's (`docs/protocol/producer-ids.md`), so brokers of both kinds can share it. A block is
claimed by read, decide, conditional write; on a lost race from the read again. When the answer to a
write is lost, another block is claimed: an unused block costs nothing, an id used twice
costs records.

The next block is claimed when half of the present one is used, so that `next_producer_id` has an id
at once. Ids that are left when the process ends are never used. No block reaches into the range of
leased ids, which are other names of ids from these blocks (`protocol/leases.py`).

Invariant: no id is handed out twice, by any broker, ever. An id is handed out only from a block whose
claim this process saw succeed, and each block this process claims lies above all that it, or an earlier
process on its data directory, has seen; a node that went back (deleted, restored from an old copy) stops
the broker's ids instead of repeating them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from echoless.broker.metadata.old_copy import REMEDY
from echoless.broker.tree.node_json import decode_node_json
from echoless.broker.tree.node_tree import (
    BadVersionError,
    ConnectionLostError,
    CoordinationError,
    Node,
    NodeExistsError,
    NodeTree,
    NoNodeError,
)
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.leases import LEASED_ID_END, LEASED_ID_MIN

PATH: Final = "/latest_producer_id_block"
BLOCK_SIZE_DEFAULT: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1
CLAIM_ATTEMPTS_MAX: Final = 100
"""Rounds in one claim; each lost race means that another broker won a block."""
NO_BROKER: Final = -1
"""The broker id of a block that no one claimed."""
ANSWERS_LOST_MAX: Final = 3
"""Lost answers in one claim, before the client is asked to try again."""

_log = logging.getLogger(__name__)


class ProducerIdBlockError(CoordinationError):
    """No block can be claimed, now or later: the ids are used up, or the node makes no sense."""


class ProducerIdBlock(NamedTuple):
    """A range of ids, both ends inclusive (as in the node)."""

    broker_id: int
    start: int
    end: int

    def encode(self) -> bytes:
        """The node's data."""
        fields = {
            "version": 1,
            "broker": self.broker_id,
            "block_start": str(self.start),
            "block_end": str(self.end),
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdBlock:
        """Raises `ProducerIdBlockError` naming the node and its content. As Kafka, any version."""
        try:
            fields = decode_node_json(data)
            start, end = _parse_id(fields["block_start"]), _parse_id(fields["block_end"])
            block = cls(int(fields["broker"]), start, end)
        except (ValueError, TypeError, KeyError) as error:
            raise ProducerIdBlockError(
                f"{PATH} holds no block of producer ids: {data!r}"
            ) from error
        if not block.start <= block.end <= PRODUCER_ID_MAX:
            raise ProducerIdBlockError(
                f"{PATH} holds an impossible block of producer ids: {data!r}"
            )
        return block


Remember = Callable[[int], Awaitable[None]]


async def _forget(_last_id: int) -> None:
    """Does nothing: no data directory exists."""


class ProducerIds:
    """The ids of one broker. Used from one event loop."""

    def __init__(
        self,
        tree: NodeTree,
        broker_id: int,
        block_size: int = BLOCK_SIZE_DEFAULT,
        *,
        last_claimed_id: int = -1,
        remember: Remember = _forget,
    ) -> None:
        """`last_claimed_id` is the highest id that the data directory proves to be claimed.

        `remember` is awaited before the first id of a block is handed out: it notes the last one,
        durably, or raises `CoordinationError`.
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
        self._highest_seen = last_claimed_id
        """The end of the last block read or claimed, by earlier processes too; never moves back."""
        self._remember = remember
        self._claim: asyncio.Task[None] | None = None
        """The newest claim; at most one is under way."""
        self._failure: ProducerIdBlockError | None = None
        """Set once and for all: no further block is claimed."""

    async def start(self) -> None:
        """Claims the first block. Raises `CoordinationError`, in particular `ProducerIdBlockError`."""
        await self._claim_block()

    async def check(self) -> None:
        """Raises `ProducerIdBlockError` if the node is older than what was claimed already."""
        self._block_after((await self._tree.read_many([PATH]))[0])

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
                self._next_block = await self._try_claim()
                return
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue  # a lost race: read again
            except ConnectionLostError:
                answers_lost += 1
                if answers_lost == ANSWERS_LOST_MAX:
                    raise
            except ProducerIdBlockError as error:
                self._failure = error
                raise
        raise CoordinationError(f"{CLAIM_ATTEMPTS_MAX} races for a block of producer ids were lost")

    async def _try_claim(self) -> ProducerIdBlock:
        node = (await self._tree.read_many([PATH]))[0]
        block = self._block_after(node)
        if node is None:
            await self._tree.create(PATH, block.encode())
        else:
            await self._tree.write(PATH, block.encode(), node.version)
        self._highest_seen = block.end
        await self._remember(block.end)
        return block

    def _block_after(self, node: Node | None) -> ProducerIdBlock:
        """The block to claim next; the first one if the node is missing or holds no data."""
        last = last_id_of(node)
        if last < self._highest_seen:
            raise ProducerIdBlockError(
                f"{PATH} went back: its last producer id is {last} and was {self._highest_seen}; the "
                f"coordinator's data is an old copy, and would hand ids out again: {REMEDY} DATA_DIR"
            )
        if last > PRODUCER_ID_MAX - self._block_size:
            raise ProducerIdBlockError(
                f"producer ids are used up: the last block in {PATH} ends at {last}"
            )
        self._highest_seen = last
        start = last + 1
        if start < LEASED_ID_END and start + self._block_size > LEASED_ID_MIN:
            start = LEASED_ID_END
        return ProducerIdBlock(self._broker_id, start, start + self._block_size - 1)


def last_id_of(node: Node | None) -> int:
    """The last id of the node's block, -1 if there is none. Raises `ProducerIdBlockError`."""
    return ProducerIdBlock.decode(node.data).end if node is not None and node.data else -1


async def raise_block(tree: NodeTree, last_id: int) -> bool:
    """Makes the next block begin above `last_id`; returns whether that took a change.

    Raises `CoordinationError`.
    """
    node = (await tree.read_many([PATH]))[0]
    if last_id_of(node) >= last_id:
        return False
    data = ProducerIdBlock(NO_BROKER, last_id, last_id).encode()
    if node is None:
        await tree.create(PATH, data)
    else:
        await tree.write(PATH, data, node.version)
    return True


def _parse_id(text: object) -> int:
    """`int()` alone would take numbers, spaces and underscores."""
    if not (isinstance(text, str) and text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is not a decimal string")
    return int(text)


def _log_failure(claim: asyncio.Task[None]) -> None:
    """Logs the failure of a claim ahead of need, for which no one waits."""
    if claim.cancelled():
        return
    error = claim.exception()
    if isinstance(error, ProducerIdBlockError):
        _log.error("no more blocks of producer ids: %s", error)
    elif error is not None:
        _log.warning("cannot claim producer ids: %s", error)
