"""The controller's work during one term: it compares topics with brokers, and writes the difference.

Every write is conditional on the version of what it was decided on, and on the proof of the term. A
refused write changes nothing, and the caller decides again on the current state.

Knows nothing of how a controller is elected. Called by `controller.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
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
from echoless.broker.controller.reassignment import arrivals, move_into_target, reassign
from echoless.broker.metadata.features import Features, least_supported
from echoless.broker.metadata.live_brokers import LiveBrokers
from echoless.broker.metadata.node_data import PREFERRED_REPLICA_ELECTION, NodeDataError
from echoless.broker.metadata.topic import Relocation, StateChange, Topic, TopicChanged
from echoless.broker.metadata.topic_changes import reassigned
from echoless.broker.metadata.topic_nodes import RELOCATIONS_MAX
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
        self._may_have_arrived: dict[str, list[int]] = {}
        """Partitions that are being reassigned and have changed, by topic: what they wait for may have come."""

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
        await self._finish_reassignments()
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
        changed = {topic.name: _changed(in_order.get(topic.name), topic) for topic in topics}
        changes = elect(
            topics,
            brokers,
            is_unclean_allowed=self._is_unclean_allowed,
            partitions_of=lambda topic: changed[topic.name],
        )
        changes = changes or move_into_target(topics, brokers, lambda topic: changed[topic.name])
        if not changes:
            self._in_order, self._in_order_for = dict(known), brokers
            self._note_moving(topics, changed)
        return changes

    def _note_moving(self, topics: Iterable[Topic], changed: Mapping[str, Collection[int]]) -> None:
        for topic in topics:
            moving = [one for one in changed[topic.name] if one in topic.reassignments]
            if moving:
                known = self._may_have_arrived.get(topic.name, ())
                self._may_have_arrived[topic.name] = list(dict.fromkeys((*known, *moving)))

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

    async def _finish_reassignments(self) -> None:
        """Performs step 3 of reassignments, on condition that the targets still have everything: of many in one write."""
        for name, partitions in list(self._may_have_arrived.items()):
            for start in range(0, len(partitions), RELOCATIONS_MAX):
                if name in self._registry.topics:
                    await self._finish(name, partitions[start : start + RELOCATIONS_MAX])
            del self._may_have_arrived[name]

    async def _finish(self, name: str, partitions: Collection[int]) -> None:
        brokers = self._electorate()

        async def decide(topic: Topic) -> Mapping[int, Relocation]:
            return arrivals(topic, partitions, brokers)

        before = self._registry.topics[name].reassignments
        after = await self._registry.change_assignments(name, decide, [self.term.proof])
        for partition in partitions:
            if partition in before and partition not in after.reassignments:
                replicas = after.assignment[partition]
                logger.info("%s-%d: reassigned to %s", name, partition, replicas)

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
        staying = self._electorate().staying
        if not _with_missing_replicas(self._registry.topics[name], staying, wanted):
            return
        added: dict[int, Relocation] = {}

        async def decide(topic: Topic) -> Mapping[int, Relocation]:
            added.update(_with_missing_replicas(topic, staying, wanted))
            return added

        await self._registry.change_assignments(name, decide, [self.term.proof])
        for partition, (replicas, _) in added.items():
            logger.info("%s-%d: adding replicas: %s", name, partition, replicas)

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


def _with_missing_replicas(
    topic: Topic, staying: Collection[int], wanted: int
) -> dict[int, Relocation]:
    """The partitions of an internal topic that lack replicas: each is given some when those before it have theirs."""
    relocations: dict[int, Relocation] = {}
    for partition in topic.assignment:
        target = with_missing_replicas(topic, partition, staying, wanted)
        if target is not None:
            relocation = reassign(topic, partition, target)
            relocations[partition] = relocation
            topic = reassigned(topic, {partition: relocation})
    return relocations


def _changed(in_order: Topic | None, topic: Topic) -> Collection[int]:
    """The partitions that differ from the topic that was in order; all of another or reconfigured one."""
    if in_order is None or (in_order.topic_id, in_order.config) != (topic.topic_id, topic.config):
        return topic.assignment.keys()
    changed = TopicChanged(in_order, topic).partitions()
    before = in_order.reassignments
    if before is topic.reassignments:
        return changed
    # One that only loses replicas has the same ones until it has lost them.
    moving = [one for one, move in topic.reassignments.items() if before.get(one) != move]
    return dict.fromkeys([*changed, *moving]).keys()
