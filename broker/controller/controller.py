"""The controller's work: while this broker is in office it keeps every partition led.

One task does everything, in this order, again after every event and after every failure:
1. stand for the office (`campaign.py`); while another broker holds it, wait for it to become free;
2. new in office, or after a lost connection: read everything again;
3. compare the topics with the brokers and write the difference (`elections.py`), until there is none;
4. hold the elections that somebody asked for, and bring reassignments forward (`reassignment.py`).

Every write is conditional on the version of what it was decided on, and on the proof of the term. A
refused write changes nothing: the task begins again at 1, and decides on what is there now. So it
does not matter where a controller stops; the next one goes on from the states alone.

Knows nothing of records and logs. Run by every member of a cluster, one of which is in office.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker.controller.campaign import NO_CONTROLLER, Campaign, Term
from broker.controller.election_requests import read_asked
from broker.controller.elections import (
    Electorate,
    elect,
    elect_as_asked,
    is_election,
    is_unclean,
    unseat,
)
from broker.controller.reassignment import (
    is_moved,
    move_into_target,
    still_as_decided,
    target_of,
)
from broker.coordination.live_brokers import LiveBrokers
from broker.coordination.node_data import (
    CONTROLLER,
    PREFERRED_REPLICA_ELECTION,
    NodeDataError,
)
from broker.coordination.node_tree import (
    Cancel,
    CoordinationError,
    Delete,
    MultiFailedError,
    NodeTree,
    SessionState,
)
from broker.coordination.topic import StateChange, Topic
from broker.coordination.topic_registry import TopicRegistry
from protocol.errors import KafkaError

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.2
"""After a failure, unless something happens sooner."""
_CHANGES_MAX: Final = 500
"""In one atomic write; half of it after each lost race, so that a busy partition holds up few others."""


@dataclass(slots=True)
class ElectionCounts:
    """What this broker has decided as a controller since its start."""

    clean_total: int = 0
    """Leaders that had all that was committed."""
    unclean_total: int = 0
    """Leaders that may have lacked some of it."""


class Controller:
    """One broker's part in having a controller. All of it runs on one event loop."""

    def __init__(
        self,
        tree: NodeTree,
        registry: TopicRegistry,
        live_brokers: LiveBrokers,
        broker_id: int,
        *,
        unclean: Callable[[Topic], bool],
        now_ms: Callable[[], int],
    ) -> None:
        """`unclean`: whether a topic may be led by a replica that was not in sync.

        `registry` follows the tree, and `live_brokers` is started, before `run` begins.
        """
        self.counts = ElectionCounts()
        self._tree = tree
        self._registry = registry
        self._live_brokers = live_brokers
        self._is_unclean_allowed = unclean
        self._campaign = Campaign(tree, broker_id, now_ms)
        self._watches: list[Cancel] = []
        self._wake = asyncio.Event()
        self._is_office_sure = False
        """Nothing has happened to `/controller` or to the session since this broker last stood."""
        self._term_read: Term | None = None
        """The term for which everything has been read."""
        self._is_asked = True
        """Somebody may have asked for elections."""
        self._sessions: dict[int, int] = {}
        """Of the brokers, when they were last looked at in this term."""
        self._in_order: dict[str, Topic] = {}
        """Versions of topics that nothing is to be changed of, as long as these brokers are alive:"""
        self._in_order_for = Electorate(frozenset())
        self._changes_max = _CHANGES_MAX

    @property
    def controller_id(self) -> int:
        """The broker that is the controller, as far as is known; -1: none."""
        return self._campaign.controller_id

    @property
    def epoch(self) -> int:
        """The newest controller epoch that was read."""
        return self._campaign.epoch

    async def run(self) -> None:
        """Until cancelled."""
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

    # --- what happens ---

    def _on_session(self, state: SessionState) -> None:
        """After a lost connection nothing that was read counts, after a lost session no office."""
        if state is SessionState.LOST:
            self._campaign.controller_id = NO_CONTROLLER
        self._term_read = None
        self._on_controller_node()

    def _on_controller_node(self, _: str = "") -> None:
        self._is_office_sure = False
        self._wake.set()

    def _on_request_node(self, _: str) -> None:
        self._is_asked = True
        self._wake.set()

    # --- the office ---

    async def _stand_and_serve(self) -> None:
        """One round, and the wait for the next one."""
        self._wake.clear()
        self._is_office_sure = True
        try:
            await self._watch_nodes()
            term = await self._campaign.stand()
            if term is not None:
                await self._take_over(term)
                await self._serve(term)
        except MultiFailedError as error:
            logger.info("the controller's decision was overtaken: %s", error)
            self._changes_max = max(1, self._changes_max // 2)
        except (CoordinationError, KafkaError) as error:
            logger.warning("the controller cannot go on: %s", error)
            self._term_read = None
            await self._pause()
        else:
            await self._wake.wait()

    async def _watch_nodes(self) -> None:
        if not self._watches:
            requests = await self._tree.watch(PREFERRED_REPLICA_ELECTION, self._on_request_node)
            self._watches = [
                requests,
                await self._tree.watch(CONTROLLER, self._on_controller_node),
            ]

    async def _pause(self) -> None:
        """Until something happens; what fails while there is a connection is tried again anyway."""
        if self._tree.session_state is not SessionState.CONNECTED:
            await self._wake.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_S):
                await self._wake.wait()

    async def _take_over(self, term: Term) -> None:
        """What was read before the term began may be older than the last controller's writes."""
        if self._term_read == term:
            return
        logger.info("this broker is the controller, in epoch %d", term.epoch)
        await self._registry.load()
        await self._live_brokers.refresh()
        self._sessions = {}
        self._is_asked = True
        self._term_read = term

    async def _serve(self, term: Term) -> None:
        """Acts at every event, until the office is in doubt."""
        while self._is_office_sure:
            self._wake.clear()
            await self._bring_in_order(term)
            await self._wake.wait()

    # --- the work ---

    async def _bring_in_order(self, term: Term) -> None:
        await self._unseat_restarted(term)
        while changes := self._due():
            await self._write(changes, term)
        await self._hold_asked_elections(term)
        for topic in list(self._registry.topics.values()):
            await self._finish_reassignments(topic, term)

    def _electorate(self) -> Electorate:
        brokers = self._live_brokers.brokers
        return Electorate(
            frozenset(brokers),
            frozenset(one for one, broker in brokers.items() if broker.info.is_leaving),
        )

    def _due(self) -> list[StateChange]:
        """Elections first; old replicas are let go only of partitions that have a leader.

        A topic that was found in order is looked at again when it, or who is alive, has changed.
        """
        brokers, known = self._electorate(), self._registry.topics
        in_order = self._in_order if brokers == self._in_order_for else {}
        topics = [topic for topic in known.values() if in_order.get(topic.name) is not topic]
        changes = elect(topics, brokers, is_unclean_allowed=self._is_unclean_allowed)
        changes = changes or move_into_target(topics, brokers)
        if not changes:
            self._in_order, self._in_order_for = dict(known), brokers
        return changes

    async def _unseat_restarted(self, term: Term) -> None:
        """A broker that is alive again in another session was gone in between."""
        sessions = {
            broker_id: broker.session_id for broker_id, broker in self._live_brokers.brokers.items()
        }
        restarted = [
            one for one in sessions if self._sessions.get(one, sessions[one]) != sessions[one]
        ]
        await self._write(unseat(self._registry.topics.values(), restarted), term)
        self._sessions = sessions

    async def _write(self, changes: Sequence[StateChange], term: Term) -> None:
        for start in range(0, len(changes), self._changes_max):
            some = [
                change._replace(after=replace(change.after, controller_epoch=term.epoch))
                for change in changes[start : start + self._changes_max]
            ]
            await self._registry.change_states(some, [term.proof])
            for change in some:
                self._tell(change)
        self._changes_max = _CHANGES_MAX

    def _tell(self, change: StateChange) -> None:
        """Counts and logs what was decided."""
        topic, partition, _, after = change
        if is_unclean(change):
            self.counts.unclean_total += 1
            logger.error(
                "%s-%d: unclean election: broker %d leads in epoch %d without having been in sync; "
                "records that only %s had are lost",
                *(topic, partition, after.leader, after.leader_epoch),
                change.before.isr if change.before else (),
            )
        elif is_election(change):
            self.counts.clean_total += 1
            logger.info(
                "%s-%d: broker %d leads in epoch %d, in sync are %s",
                *(topic, partition, after.leader, after.leader_epoch, after.isr),
            )

    async def _hold_asked_elections(self, term: Term) -> None:
        if not self._is_asked:
            return
        self._is_asked = False
        try:
            asked = await read_asked(self._tree)
        except NodeDataError as error:
            logger.error("no elections are held: %s", error)  # noqa: TRY400 - the message says all
            return
        if asked is not None:
            changes = elect_as_asked(self._registry.topics, self._electorate(), asked.elections)
            await self._write(changes, term)
            done = Delete(PREFERRED_REPLICA_ELECTION, asked.version)
            await self._tree.multi([term.proof, done])

    async def _finish_reassignments(self, topic: Topic, term: Term) -> None:
        """Step 3 of a reassignment: on condition that the target still has everything."""
        for partition in topic.reassignments:
            current = self._registry.topics.get(topic.name)
            if current is None or not is_moved(current, partition, self._electorate()):
                continue
            target = target_of(current, partition)
            checks = [term.proof, *still_as_decided(current, partition)]
            await self._registry.change_assignment(current.name, partition, target, None, checks)
            logger.info("%s-%d: reassigned to %s", current.name, partition, target)
