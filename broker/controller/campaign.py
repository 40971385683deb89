"""The election of the controller: `/controller` names it, `/controller_epoch` counts the elections.

`/controller` is ephemeral, so it disappears when the controller's session ends; every broker
watches it. Creating it and raising `/controller_epoch` are one atomic operation, so no two terms
share an epoch. The version of `/controller_epoch` is the proof of a term: every write of a
controller is conditional on it, so the writes of an earlier controller are refused from the moment
the next one has taken over, however late they arrive.

Invariant: no two terms share an epoch, and nothing of a term is written after the next has begun.

Knows nothing of the controller's work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from echoless.broker.metadata.node_data import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from echoless.broker.tree.node_tree import (
    Check,
    Create,
    MultiFailedError,
    Node,
    NodeExistsError,
    NodeTree,
    SetData,
)

logger = logging.getLogger(__name__)

NO_CONTROLLER: Final = -1
_EPOCH_BEFORE_ALL: Final = 0


@dataclass(slots=True, frozen=True)
class Term:
    """The time from one election of a controller to the next."""

    epoch: int
    proof: Check
    """Fails as soon as another broker has taken over."""


class Campaign:
    """One broker's attempts to become the controller."""

    def __init__(self, tree: NodeTree, broker_id: int, now_ms: Callable[[], int]) -> None:
        self._tree = tree
        self._broker_id = broker_id
        self._now_ms = now_ms
        self.controller_id = NO_CONTROLLER
        """The controller as of the last read."""
        self.epoch = _EPOCH_BEFORE_ALL

    async def stand(self) -> Term | None:
        """Returns this broker's term if it is, or has just become, the controller; else None.

        Raises `CoordinationError`; the next call then shows whether this broker was elected.
        """
        # The epoch first: a term that ends between the two reads is then given a proof that fails,
        # never that of its successor.
        epoch_node = await self._read_epoch()
        holder = (await self._tree.read_many([CONTROLLER]))[0]
        self.epoch = decode_controller_epoch(epoch_node.data)
        if holder is None:
            return await self._take_office(epoch_node)
        self.controller_id = decode_controller(holder.data)
        if holder.owner != self._tree.session_id:
            return None
        return self._term(epoch_node.version)

    async def _read_epoch(self) -> Node:
        node = (await self._tree.read_many([CONTROLLER_EPOCH]))[0]
        if node is not None:
            return node
        try:
            await self._tree.create(CONTROLLER_EPOCH, encode_controller_epoch(_EPOCH_BEFORE_ALL))
        except NodeExistsError:
            logger.debug("another broker has made %s", CONTROLLER_EPOCH)
        return await self._tree.read(CONTROLLER_EPOCH)

    async def _take_office(self, epoch_node: Node) -> Term | None:
        data = encode_controller(self._broker_id, self._now_ms())
        raised = encode_controller_epoch(self.epoch + 1)
        try:
            await self._tree.multi(
                [
                    Create(CONTROLLER, data, ephemeral=True),
                    SetData(CONTROLLER_EPOCH, raised, epoch_node.version),
                ]
            )
        except MultiFailedError:
            return None  # another broker was faster, and the watch will report it
        self.controller_id = self._broker_id
        self.epoch += 1
        return self._term(epoch_node.version + 1)

    def _term(self, version: int) -> Term:
        return Term(self.epoch, Check(CONTROLLER_EPOCH, version))
