"""The registration of a cluster member, and what it gives up before it registers.

1. Wait until the session of this broker's previous epoch has ended. Refuse a tree that is an old copy, and
   raise this broker's mark in it (`broker/metadata/seen_tree.py`).
2. With an empty disk: refuse if this broker is the last replica in sync.
3. Withdraw from what the previous epoch led (`broker/cluster/withdrawal.py`), and from the in-sync
   replicas if the end of a log may be lost. With an empty disk, refuse again: it may have become
   the last one.
4. Register. From then on the controller may assign roles.

A crash after any step: the next start begins again and finds less to give up.

Invariant: a change of a registration never takes back another one, and every later session of the process repeats it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from echoless.broker.cluster.withdrawal import withdraw
from echoless.broker.config.loading import Config
from echoless.broker.metadata.old_copy import check_leader_epochs
from echoless.broker.metadata.registration import (
    BrokerInfo,
    Endpoint,
    await_departure,
    register_broker,
    update_registration,
)
from echoless.broker.metadata.seen_tree import SeenTree
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.node_tree import (
    ConnectionLostError,
    CoordinationError,
    NodeTree,
    SessionState,
)
from echoless.storage.log_directory import LogDirectory

OLD_SESSION_MARGIN_S: Final = 2.0
"""ZooKeeper expires sessions a tick or two late."""
_NAMES_MAX: Final = 5


class Joining:
    """The registrations of one process, one per session."""

    def __init__(
        self,
        config: Config,
        tree: NodeTree,
        registry: TopicRegistry,
        logs: LogDirectory,
        seen: SeenTree,
        *,
        tail_is_safe: bool,
        is_new_directory: bool,
    ) -> None:
        """`tail_is_safe`: no power failure can have taken anything from these logs."""
        self.unsafe_tails: dict[str, None] = {}
        """Partitions in which no other replica was in sync when the tail was lost, by name."""
        self.broker_epoch = 0
        """The session under which this broker is registered."""
        self._info: BrokerInfo | None = None
        """The registration, which the next session repeats."""
        self._writing = asyncio.Lock()
        """Held while the registration is written, so that no change takes another one back."""
        self._config = config
        self._tree = tree
        self._registry = registry
        self._logs = logs
        self._seen = seen
        self._tail_is_safe = tail_is_safe and not is_new_directory
        """Everything this broker ever had in its logs is still there."""
        self._is_new_directory = is_new_directory

    async def register(self, info: BrokerInfo) -> None:
        """Registers this broker for the first time. Raises `BrokerIdInUseError`, `CoordinationError`."""
        self._info = info
        await self.register_again()

    async def register_again(self) -> None:
        """Registers under the present session.

        Raises `BrokerIdInUseError`, `OldCopyError`, `CoordinationError`.
        """
        broker_id = self._registration().broker_id
        wait_s = self._tree.session_timeout_s + OLD_SESSION_MARGIN_S
        await await_departure(self._tree, broker_id, wait_s=wait_s)
        await self._registry.load()
        await self._seen.check()
        check_leader_epochs(self._registry.topics, self._logs)
        await self._seen.prepare()
        await self._seen.note(is_new=True)
        if self._is_new_directory:
            self._check_nothing_is_lost(broker_id)
        await withdraw(self._registry, broker_id, tail_is_safe=self._tail_is_safe)
        if self._is_new_directory:
            self._check_nothing_is_lost(broker_id)
        if not self._tail_is_safe:
            self.unsafe_tails = dict.fromkeys(self._last_in_sync(broker_id))
        broker_epoch = self._tree.session_id
        async with self._writing:
            await register_broker(self._tree, self._registration())
        if self._tree.session_id != broker_epoch or self._tree.session_state is SessionState.LOST:
            raise ConnectionLostError("the session ended while it was registered")
        # The next session belongs to the same process, with the same logs.
        self._tail_is_safe, self._is_new_directory = True, False
        self.broker_epoch = broker_epoch

    async def announce_departure(self) -> None:
        """Marks the registration as leaving, in this session and in every later one.

        Raises `CoordinationError`.
        """
        self._info = self._registration()._replace(is_leaving=True)
        await self._announce()

    async def announce_unserved(self, topics: frozenset[str]) -> None:
        """Names the topics that this broker must not lead, in this session and in every later one.

        Raises `CoordinationError`.
        """
        self._info = self._registration()._replace(unserved=topics)
        await self._announce()

    async def announce_endpoints(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Registers other addresses, in this session and in every later one.

        Raises `CoordinationError`: the addresses are those from before, once the registration has been announced again.
        """
        before = self._registration().endpoints
        self._info = self._registration()._replace(endpoints=endpoints)
        try:
            await self._announce()
        except CoordinationError:
            self._info = self._registration()._replace(endpoints=before)
            raise

    async def _announce(self) -> None:
        async with self._writing:
            await update_registration(self._tree, self._registration())

    def _registration(self) -> BrokerInfo:
        assert self._info is not None, "the broker has not been registered before"
        return self._info

    def _last_in_sync(self, broker_id: int) -> Iterator[str]:
        """Names of the partitions in which only this broker is in sync."""
        for topic in self._registry.topics.values():
            for index, state in topic.states.items():
                if state.isr == (broker_id,):
                    yield f"{topic.name}-{index}"

    def _check_nothing_is_lost(self, broker_id: int) -> None:
        """Refuses to let an empty log be elected: all other replicas would be truncated to nothing.

        Raises `CoordinationError`.
        """
        names = list(self._last_in_sync(broker_id))
        if names:
            raise CoordinationError(
                f"data_dir {self._config.data_dir} is new, but broker {broker_id} is the last "
                f"replica in sync of {', '.join(names[:_NAMES_MAX])} ({len(names)} in all): bring its "
                f"data back; or give its records up, by an unclean election of another replica "
                f"(echoless topics elect-leaders --unclean) or by deleting these topics"
            )
