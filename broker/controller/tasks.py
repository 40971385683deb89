"""The controller's work during one term: it compares topics with brokers, and writes the difference.

Every write is conditional on the version of what it was decided on, and on the proof of the term. A
refused write changes nothing, and the caller decides again on the current state.

Knows nothing of how a controller is elected. Called by `controller.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Final

from echoless.broker.config.feature_levels import FEATURE, LEVEL_MAX
from echoless.broker.controller.campaign import Term
from echoless.broker.controller.election_requests import read_asked
from echoless.broker.controller.elections import (
    Electorate,
    elect,
    elect_as_asked,
    is_election,
    is_unclean,
    unseat,
)
from echoless.broker.controller.internal_replicas import with_missing_replicas
from echoless.broker.controller.reassignment import (
    is_moved,
    move_into_target,
    reassign,
    still_as_decided,
    target_of,
)
from echoless.broker.metadata.features import Features, least_supported
from echoless.broker.metadata.live_brokers import LiveBrokers
from echoless.broker.metadata.node_data import PREFERRED_REPLICA_ELECTION, NodeDataError
from echoless.broker.metadata.topic import StateChange, Topic, TopicChanged
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.node_tree import Delete, MultiFailedError, NodeTree

logger = logging.getLogger(__name__)

_CHANGES_MAX: Final = 500
"""Changes per atomic write; halved after each lost race, so that a busy partition delays few."""


class ControllerTasks:
    """One term's work. It remembers only what it has seen during the term."""

    def __init__(
        self,
        term: Term,
        tree: NodeTree,
        registry: TopicRegistry,
        live_brokers: LiveBrokers,
        *,
        unclean: Callable[[Topic], bool],
        elections: MutableMapping[str, int],
        internal_replicas: Mapping[str, int],
        features: Features | None,
    ) -> None:
        """`internal_replicas`: the number that each internal topic should have, by name, once there are as many brokers.

        `features`: see `Controller`.
        """
        self.term = term
        self._tree = tree
        self._registry = registry
        self._live_brokers = live_brokers
        self._is_unclean_allowed = unclean
        self._elections = elections
        self._internal_replicas = internal_replicas
        self._features = features
        self._waited_for: set[int] = set()
        """Brokers that are away and hold replicas, without which the level of features does not rise."""
        self._is_asked = True
        """Whether elections may have been requested."""
        self._sessions: dict[int, int] = {}
        """Broker epochs by broker id, as last seen."""
        self._in_order: dict[str, Topic] = {}
        """Topics, by name, that need no change while the electorate is `_in_order_for`."""
        self._in_order_for = Electorate(frozenset())
        self._changes_max = _CHANGES_MAX

    def look_for_requests(self) -> None:
        """Reads the requests at the next opportunity."""
        self._is_asked = True

    def look_at_all_again(self) -> None:
        """Forgets which topics need no change."""
        self._in_order = {}

    async def perform(self) -> None:
        """Returns when there is nothing left to do. Raises `CoordinationError`, `KafkaError`."""
        await self._unseat_restarted()
        while changes := self._due():
            await self._write(changes)
        await self._hold_asked_elections()
        for topic in list(self._registry.topics.values()):
            await self._finish_reassignments(topic)
        await self._raise_features()
        for name, wanted in self._internal_replicas.items():
            if name in self._registry.topics:
                await self._add_missing_replicas(name, wanted)

    def _electorate(self) -> Electorate:
        brokers = self._live_brokers.brokers
        unserved: dict[str, frozenset[int]] = {}
        for broker_id, broker in brokers.items():
            for topic in broker.info.unserved:
                unserved[topic] = unserved.get(topic, frozenset()) | {broker_id}
        return Electorate(
            frozenset(brokers),
            frozenset(one for one, broker in brokers.items() if broker.info.is_leaving),
            unserved,
        )

    def _due(self) -> list[StateChange]:
        """The changes due: elections, then old replicas to remove where a partition has a leader.

        Partitions found in order are looked at again when they, or the set of live brokers, have changed.
        """
        brokers, known = self._electorate(), self._registry.topics
        in_order = self._in_order if brokers == self._in_order_for else {}
        topics = [topic for topic in known.values() if in_order.get(topic.name) is not topic]
        changes = elect(
            topics,
            brokers,
            is_unclean_allowed=self._is_unclean_allowed,
            partitions_of=lambda topic: _changed(in_order.get(topic.name), topic),
        )
        changes = changes or move_into_target(topics, brokers)
        if not changes:
            self._in_order, self._in_order_for = dict(known), brokers
        return changes

    async def _unseat_restarted(self) -> None:
        """Unseats brokers that are alive again in another session: they were gone in between."""
        sessions = {
            broker_id: broker.session_id for broker_id, broker in self._live_brokers.brokers.items()
        }
        restarted = [
            one for one in sessions if self._sessions.get(one, sessions[one]) != sessions[one]
        ]
        if restarted:
            await self._write(unseat(self._registry.topics.values(), restarted))
        self._sessions = sessions

    async def _hold_asked_elections(self) -> None:
        if not self._is_asked:
            return
        self._is_asked = False
        try:
            await self._hold_elections_of_node()
        except BaseException:
            self._is_asked = True  # a lost race: no one will ask again for what was not done
            raise

    async def _hold_elections_of_node(self) -> None:
        try:
            asked = await read_asked(self._tree)
        except NodeDataError as error:
            logger.error("no elections are held: %s", error)  # noqa: TRY400 - the message says all
            return
        if asked is not None:
            changes = elect_as_asked(self._registry.topics, self._electorate(), asked.elections)
            await self._write(changes)
            done = Delete(PREFERRED_REPLICA_ELECTION, asked.version)
            await self._tree.multi([self.term.proof, done])

    async def _finish_reassignments(self, topic: Topic) -> None:
        """Performs step 3 of a reassignment, on condition that the target still has everything."""
        for partition in topic.reassignments:
            current = self._registry.topics.get(topic.name)
            if current is None or not is_moved(current, partition, self._electorate()):
                continue
            target = target_of(current, partition)
            checks = [self.term.proof, *still_as_decided(current, partition)]
            await self._registry.change_assignment(current.name, partition, target, None, checks)
            logger.info("%s-%d: reassigned to %s", current.name, partition, target)

    async def _raise_features(self) -> None:
        """Raises the level of what may be stored, once no broker is too old for it: none that is here or holds a replica."""
        features, brokers = self._features, self._live_brokers.brokers
        if features is None or features.level >= LEVEL_MAX:
            return
        level = least_supported(broker.info for broker in brokers.values())
        if level <= features.level:
            return
        topics = self._registry.topics.values()
        away = {
            one for topic in topics for replicas in topic.assignment.values() for one in replicas
        }.difference(brokers)
        if not away:
            await features.raise_to(level, [self.term.proof])
        elif away != self._waited_for:
            logger.info(
                "the level of %s stays at %d until brokers %s are back, which hold replicas and may be of an older version",
                *(FEATURE, features.level, sorted(away)),
            )
        self._waited_for = away

    async def _add_missing_replicas(self, name: str, wanted: int) -> None:
        """Begins to give the partitions of an internal topic the replicas that they lack of those `wanted`."""
        for partition in self._registry.topics[name].assignment:
            topic = self._registry.topics.get(name)
            if topic is None:
                return
            target = with_missing_replicas(topic, partition, self._electorate().staying, wanted)
            if target is not None:
                replicas, moving = reassign(topic, partition, target)
                checks = [self.term.proof, *still_as_decided(topic, partition)]
                await self._registry.change_assignment(name, partition, replicas, moving, checks)
                logger.info("%s-%d: adding replicas: %s", name, partition, target)

    async def _write(self, changes: Sequence[StateChange]) -> None:
        for start in range(0, len(changes), self._changes_max):
            some = [
                change._replace(after=change.after._replace(controller_epoch=self.term.epoch))
                for change in changes[start : start + self._changes_max]
            ]
            try:
                await self._registry.change_states(some, [self.term.proof])
            except MultiFailedError:
                self._changes_max = max(1, self._changes_max // 2)
                raise
            for change in some:
                self._tell(change)
        self._changes_max = _CHANGES_MAX

    def _tell(self, change: StateChange) -> None:
        """Counts and logs a decision."""
        topic, partition, before, after = change
        if is_unclean(change):
            self._elections["unclean"] += 1
            logger.error(
                "%s-%d: unclean election: broker %d leads in epoch %d without having been in sync; "
                "records that only %s had are lost",
                *(topic, partition, after.leader, after.leader_epoch),
                before.isr if before else (),
            )
        elif is_election(change):
            self._elections["clean"] += 1
            logger.info(
                "%s-%d: broker %d leads in epoch %d, in sync are %s",
                *(topic, partition, after.leader, after.leader_epoch, after.isr),
            )


def _changed(in_order: Topic | None, topic: Topic) -> Iterable[int]:
    """The partitions that differ from the topic that was in order; all of another or reconfigured one."""
    if in_order is None or (in_order.topic_id, in_order.config) != (topic.topic_id, topic.config):
        return topic.assignment
    return TopicChanged(in_order, topic).partitions()
