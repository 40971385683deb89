"""A member's watch over the coordinator's tree: it notes what is new there, and has others note what it claims.

Noted are blocks of producer ids, whoever claims them, and leader epochs of partitions that this broker has a
replica of (`broker/metadata/seen_tree.py`). A tree that has gone back is an old copy: this broker must end.

Before the first id of a block is handed out, every broker that can be reached has noted it. So whichever of
them starts first on an older copy of the tree refuses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from echoless.broker.cluster.view import ClusterView
from echoless.broker.metadata.old_copy import LAG_CHECKS_MAX, LAG_PAUSE_S, REMEDY, OldCopyError
from echoless.broker.metadata.producer_id_block import PATH, last_id_of
from echoless.broker.metadata.topic import TopicChanged, TopicEvent
from echoless.broker.replication.peers import PeerError, Peers
from echoless.broker.tree.node_tree import Cancel, NodeTree
from echoless.broker.tree.refresher import Refresher
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.native.replication import NoteTree, read_note_tree_answer

if TYPE_CHECKING:
    from echoless.broker.metadata.seen_tree import SeenTree
    from echoless.broker.metadata.topic_registry import TopicRegistry

logger = logging.getLogger(__name__)

ANSWER_S: Final = 1.0
"""The time that another broker has for noting a block; one that does not answer has it from its own watch."""
ASKED_MAX: Final = 3
ASKED_AGAIN_S: Final = 0.1
_NO_EPOCH: Final = -1
_TOO_OLD: Final = (
    "broker %d is of an earlier release, and notes no producer ids: until it is upgraded it starts on an older copy of "
    "the coordinator's data, which the brokers of this release refuse"
)


class TreeWatch:
    """The watch of one cluster member, from `start` to `close`."""

    def __init__(
        self,
        broker_id: int,
        tree: NodeTree,
        seen: SeenTree,
        registry: TopicRegistry,
        *,
        view: ClusterView,
        peers: Peers,
        on_old_copy: Callable[[OldCopyError], None],
    ) -> None:
        self._broker_id = broker_id
        self._tree = tree
        self._seen = seen
        self._registry = registry
        self._view = view
        self._peers = peers
        self._on_old_copy = on_old_copy
        self._cancels: list[Cancel] = []
        self._has_new_epochs = False
        self._too_old: set[int] = set()
        """Brokers of earlier releases, of which that has been logged."""
        self._waiting: list[asyncio.Future[None]] = []
        """Wait for the end of the next round."""
        self._refresher = Refresher("what was seen of the coordinator", self._round)

    async def start(self) -> None:
        """Begins to watch. Raises `CoordinationError`."""
        self._cancels = [
            self._registry.listen(self._on_topic),
            await self._tree.watch(PATH, lambda _: self.look()),
        ]
        self._refresher.start()
        self.look()

    async def close(self) -> None:
        """Stops watching."""
        for cancel in self._cancels:
            cancel()
        await self._refresher.close()
        self._answer(self._waiting)

    def look(self) -> None:
        """Compares the tree with what was seen, soon."""
        self._refresher.ask()

    async def note(self, last_id: int) -> int:
        """Notes the tree's newest block unless one up to `last_id` is noted; returns the last id noted."""
        if self._seen.saved_last_id < last_id:
            noted = asyncio.get_running_loop().create_future()
            self._waiting.append(noted)
            self.look()
            await noted
        return self._seen.saved_last_id

    async def confirm(self, last_id: int) -> None:
        """Has all other brokers note the block that ends with `last_id`, as far as they can be reached.

        Raises `OldCopyError` if one of them has seen a block that the tree does not have, `CoordinationError`.
        """
        others = [one for one in self._view.live.brokers if one != self._broker_id]
        for broker_id, seen in zip(
            others, await asyncio.gather(*(self._ask(one, last_id) for one in others)), strict=True
        ):
            await self._compare(broker_id, seen)

    async def _ask(self, broker_id: int, last_id: int) -> int:
        """Returns the last id that the broker has noted; -1 if it does not say."""
        noted = _NO_EPOCH
        for attempt in range(ASKED_MAX):
            address = self._view.native_address(broker_id)
            if address is None:
                break
            if attempt:  # its server of ZooKeeper lags
                await asyncio.sleep(ASKED_AGAIN_S)
            try:
                answer = await self._peers.call(
                    broker_id, address, NoteTree(last_id=last_id).to_message(), timeout_s=ANSWER_S
                )
                noted = read_note_tree_answer(answer)
            except (PeerError, KafkaError, DecodeError) as error:
                self._log_silence(broker_id, last_id, error)
                break
            self._too_old.discard(broker_id)
            if noted >= last_id:
                break
        return noted

    def _log_silence(self, broker_id: int, last_id: int, error: Exception) -> None:
        """Says why a broker has not noted an id; of a release that cannot note any, once."""
        if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
            if broker_id not in self._too_old:
                self._too_old.add(broker_id)
                logger.warning(_TOO_OLD, broker_id)
            return
        logger.info("broker %d has not noted producer id %d: %s", broker_id, last_id, error)

    async def _compare(self, broker_id: int, seen: int) -> None:
        for _ in range(LAG_CHECKS_MAX):
            last_id = last_id_of((await self._seen.read()).block)
            if last_id >= seen:
                return
            await asyncio.sleep(LAG_PAUSE_S)
        raise OldCopyError(
            f"broker {broker_id} has seen producer id {seen}, and {PATH} ends at {last_id}; the "
            f"coordinator's data is an old copy: {REMEDY} DATA_DIR"
        )

    def _on_topic(self, event: TopicEvent) -> None:
        if isinstance(event, TopicChanged) and self._begins_epoch(event):
            self._has_new_epochs = True
            self.look()

    def _begins_epoch(self, event: TopicChanged) -> bool:
        """Whether a partition with a replica here has a new leader epoch."""
        before, after = event
        for partition in event.partitions():
            old, new = before.states.get(partition), after.states.get(partition)
            old_epoch = _NO_EPOCH if old is None else old.leader_epoch
            if (
                new is not None
                and new.leader_epoch > old_epoch
                and self._broker_id in after.assignment[partition]
            ):
                return True
        return False

    async def _round(self) -> None:
        waiting, self._waiting = self._waiting, []
        has_new_epochs, self._has_new_epochs = self._has_new_epochs, False
        try:
            await self._seen.note(is_new=has_new_epochs)
        except OldCopyError as error:
            self._on_old_copy(error)
        except BaseException:
            self._has_new_epochs |= has_new_epochs
            raise
        finally:
            self._answer(waiting)

    @staticmethod
    def _answer(waiting: list[asyncio.Future[None]]) -> None:
        for future in waiting:
            if not future.done():
                future.set_result(None)
