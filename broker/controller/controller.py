"""The controller: while this broker is the active one, it keeps every partition led.

One task does everything, in this order, again after every event and after every failure:
1. stand for election (`campaign.py`); while another broker is the controller, wait until it is not;
2. once elected, and after a lost connection, read everything again;
3. write what the states lack (`tasks.py`), and wait for the next event.

It does not matter at which step a controller stops: its successor continues from the states alone.

Knows nothing of records and logs. Every member of a cluster runs one, of which one is active.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from echoless.broker.controller.campaign import NO_CONTROLLER, Campaign, Term
from echoless.broker.controller.tasks import ControllerTasks
from echoless.broker.limited_log import COORDINATOR, RetryLog
from echoless.broker.metadata.features import Features
from echoless.broker.metadata.live_brokers import LiveBrokers
from echoless.broker.metadata.node_data import CONTROLLER, PREFERRED_REPLICA_ELECTION
from echoless.broker.metadata.topic import Topic
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.node_tree import (
    Cancel,
    CoordinationError,
    MultiFailedError,
    NodeTree,
    SessionState,
)
from echoless.protocol.errors import KafkaError

logger = logging.getLogger(__name__)
limited: Final = RetryLog(logger)

_RETRY_S: Final = 0.2
"""Pause after a failure, unless something happens sooner."""
_RACE_PAUSE_S: Final = 0.01
"""Pause after a lost race, so that the faster writer can finish."""


class Controller:
    """The controller of one broker, active or waiting. Runs entirely on one event loop."""

    def __init__(
        self,
        tree: NodeTree,
        registry: TopicRegistry,
        live_brokers: LiveBrokers,
        broker_id: int,
        *,
        unclean: Callable[[Topic], bool],
        now_ms: Callable[[], int],
        elections: defaultdict[str, int],
        internal_replicas: Mapping[str, int],
        features: Features | None = None,
    ) -> None:
        """`unclean`: whether a topic may be led by a replica that was not in sync.

        `registry` follows the tree, and `live_brokers` is started, before `run` begins. `elections`
        counts the elections held: `clean`, or `unclean` (records may be lost). `internal_replicas`: the
        number that each internal topic should have, by name, once there are as many brokers.
        `features`: whose level is raised when all brokers support it; None: only clients raise it.
        """
        self._tree = tree
        self._registry = registry
        self._live_brokers = live_brokers
        self._is_unclean_allowed = unclean
        self._elections = elections
        self._internal_replicas = internal_replicas
        self._features = features
        self._campaign = Campaign(tree, broker_id, now_ms)
        self._watches: list[Cancel] = []
        self._wake = asyncio.Event()
        self._is_office_sure = False
        """Whether `/controller` and the session are unchanged since this broker last stood for election."""
        self._tasks: ControllerTasks | None = None
        """The tasks of the term for which everything has been read; None: read it again."""

    @property
    def controller_id(self) -> int:
        """The broker that is the controller, as far as is known; -1 if none."""
        return self._campaign.controller_id

    @property
    def epoch(self) -> int:
        """The newest controller epoch read."""
        return self._campaign.epoch

    async def run(self) -> None:
        """Runs until cancelled."""
        cancels = [
            self._registry.listen(lambda _: self._wake.set()),
            self._live_brokers.listen(self._wake.set),
            self._tree.on_session(self._on_session),
        ]
        try:
            while True:
                await self._stand_and_serve()
        finally:
            for cancel in (*cancels, *self._watches):
                cancel()

    # --- events ---

    def _on_session(self, state: SessionState) -> None:
        """Discards everything read so far; after a lost session no controller is known either."""
        if state is SessionState.LOST:
            self._campaign.controller_id = NO_CONTROLLER
        self._tasks = None
        self._on_controller_node()

    def _on_controller_node(self, _: str = "") -> None:
        self._is_office_sure = False
        self._wake.set()

    def _on_request_node(self, _: str) -> None:
        if self._tasks is not None:
            self._tasks.look_for_requests()
        self._wake.set()

    def look_at_all_again(self) -> None:
        """Another rule for unclean elections is in force: partitions without a leader may get one."""
        if self._tasks is not None:
            self._tasks.look_at_all_again()
        self._wake.set()

    # --- election and term ---

    async def _stand_and_serve(self) -> None:
        """Runs one round, until this broker may no longer be the controller or something fails."""
        self._wake.clear()
        self._is_office_sure = True
        try:
            await self._watch_nodes()
            term = await self._campaign.stand()
            if term is None:
                await self._wait_for_vacancy()
            else:
                await self._serve(await self._take_over(term))
        except MultiFailedError as error:
            message = "the controller's decision was overtaken: %s"
            limited.log(logging.INFO, COORDINATOR, message, error)
            await asyncio.sleep(_RACE_PAUSE_S)
        except (CoordinationError, KafkaError) as error:
            message = "the controller cannot go on: %s"
            limited.log(logging.WARNING, COORDINATOR, message, error)
            self._tasks = None
            await self._pause()

    async def _watch_nodes(self) -> None:
        if not self._watches:
            requests = await self._tree.watch(PREFERRED_REPLICA_ELECTION, self._on_request_node)
            self._watches = [
                requests,
                await self._tree.watch(CONTROLLER, self._on_controller_node),
            ]

    async def _pause(self) -> None:
        """Waits for the next event, but only for a moment while there is a connection."""
        if self._tree.session_state is not SessionState.CONNECTED:
            await self._wake.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_S):
                await self._wake.wait()

    async def _wait_for_vacancy(self) -> None:
        """Waits until there may be no controller; other events are the active controller's business."""
        while self._is_office_sure:
            self._wake.clear()
            await self._wake.wait()

    async def _take_over(self, term: Term) -> ControllerTasks:
        """Reads everything again: earlier reads may predate the last controller's writes."""
        if self._tasks is not None and self._tasks.term == term:
            return self._tasks
        logger.info("this broker is the controller, in epoch %d", term.epoch)
        await self._registry.load()
        await self._live_brokers.refresh()
        self._tasks = ControllerTasks(
            term,
            self._tree,
            self._registry,
            self._live_brokers,
            unclean=self._is_unclean_allowed,
            elections=self._elections,
            internal_replicas=self._internal_replicas,
            features=self._features,
        )
        return self._tasks

    async def _serve(self, tasks: ControllerTasks) -> None:
        """Acts on every event, until this broker may no longer be the controller."""
        while self._is_office_sure:
            self._wake.clear()
            await tasks.perform()
            await self._wake.wait()
