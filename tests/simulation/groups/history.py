"""One history of consumer groups: members of both protocols, their accidents, and the cluster's faults.

`python -m tests.simulation --kind groups` plays others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.coordinators.groups.durable import DurableGroups
from echoless.protocol.state_records.partitioner import partition_of
from tests.simulation.checkers import groups as promises
from tests.simulation.checkers import settled
from tests.simulation.cluster import Cluster, Topic
from tests.simulation.groups.classic import PLACES, ClassicMember
from tests.simulation.groups.consumer import TOPIC, ConsumerMember
from tests.simulation.groups.member import SESSION_S, Committer, Member
from tests.simulation.groups.seen import Seen
from tests.simulation.nemesis import Nemesis
from tests.simulation.observations import Spot

PARTITIONS: Final = 4
FAULTS_OVER_S: Final = 15.0
STABLE_WITHIN_S: Final = 60.0
"""Both timeouts several times over: a member that was fenced joins again, and each rejoining makes another round."""


def settings(rng: Random) -> dict[str, Any]:
    """The configuration of the brokers, besides what all histories have."""
    return {
        "offsets_topic_num_partitions": rng.choice((1, 2)),
        "group_min_session_timeout_ms": 1000,
        "group_consumer_session_timeout_ms": round(SESSION_S * 1000),
        "group_consumer_heartbeat_interval_ms": 500,
        "group_initial_rebalance_delay_ms": rng.choice((0, 300)),
    }


class GroupHistory:
    """The groups of one history."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.seen = Seen(cluster.observations, SESSION_S)
        self.classic: list[ClassicMember] = []
        self.consumers: list[ConsumerMember] = []
        self.committers: list[Committer] = []

    def play(self, kinds: Sequence[str]) -> bool:
        """Plays it until all are calm. Returns whether no promise was broken yet."""
        cluster, rng = self._cluster, self._rng
        factor = rng.choice((2, 3, 3))
        cluster.start([Topic(name=TOPIC, partitions=PARTITIONS, replication_factor=factor)])
        self._create_offsets_topic()
        self._add_members()
        if rng.random() < 1 / 3:
            cluster.loop.call_later(rng.uniform(1.0, FAULTS_OVER_S), self._grow)
        nemesis = Nemesis(cluster, rng, kinds)
        nemesis.plan(rng.randint(3, 10), FAULTS_OVER_S)
        findings = cluster.observations.findings
        cluster.run_for(FAULTS_OVER_S, lambda: bool(findings))
        if not findings:
            nemesis.heal()
            self._calm_down()
        return not findings

    def _create_offsets_topic(self) -> None:
        """Creates `__consumer_offsets` with segments so small that it is cleaned all the while."""
        cluster, rng = self._cluster, self._rng
        service = next(iter(cluster.machines.values())).service
        assert service is not None
        services = service.broker.services
        changes = {"segment.bytes": rng.choice(("3000", "8000"))}

        async def create() -> int:
            count = await services.groups.topic.until_created()
            await services.registry.set_topic_config(CONSUMER_OFFSETS, changes)
            return count

        created = service.process.spawn(create())
        cluster.run_until_true(created.done, 60.0)
        self._count = created.result()
        cluster.replication_factors[CONSUMER_OFFSETS] = len(
            cluster.state_of(Spot(CONSUMER_OFFSETS, 0))["isr"]
        )
        cluster.spots += self.offsets_spots

    @property
    def offsets_spots(self) -> list[Spot]:
        return [Spot(CONSUMER_OFFSETS, index) for index in range(self._count)]

    def _spot_of(self, group_id: str) -> Spot:
        return Spot(CONSUMER_OFFSETS, partition_of(group_id, self._count))

    def _add_members(self) -> None:
        cluster, seen = self._cluster, self.seen
        for number, instance_id in enumerate((None, None, "i", "i")):
            client = cluster.new_client(f"classic{number}")
            spot = self._spot_of("classic")
            is_old = number == 1
            self.classic.append(
                ClassicMember(client, seen, "classic", spot, instance_id=instance_id, is_old=is_old)
            )
        for number, instance_id in enumerate((None, None, None, "i", "i")):
            client = cluster.new_client(f"consumer{number}")
            spot = self._spot_of("consumer")
            self.consumers.append(ConsumerMember(client, seen, "consumer", spot, instance_id))
        for number in range(2):
            client = cluster.new_client(f"committer{number}")
            spot = self._spot_of("simple")
            self.committers.append(Committer(client, seen, "simple", spot, (TOPIC, 0)))
        for member in self._members():
            member.client.process.spawn(member.run())

    def _grow(self) -> None:
        """Gives the topic that consumers subscribe to two more partitions, unless the broker that is asked fails."""
        services = [one.service for one in self._cluster.machines.values() if one.service]
        if services:
            service = self._rng.choice(services)
            topics = service.broker.services.topics
            service.process.spawn(topics.create_partitions(TOPIC, PARTITIONS + 2))

    @property
    def _partition_count(self) -> int:
        node = self._cluster.server.nodes.get(f"/brokers/topics/{TOPIC}")
        assert node is not None
        return len(json.loads(node.data)["partitions"])

    def _members(self) -> list[Member]:
        return [*self.classic, *self.consumers, *self.committers]

    # --- the end

    def _calm_down(self) -> None:
        """G6: once no one disturbs them, members share all partitions before long."""
        for member in self._members():
            member.is_calm = True
        for twins in (self.classic, self.consumers):
            twins[-1].is_wanted = False
        findings = self._cluster.observations.findings
        self._cluster.run_for(STABLE_WITHIN_S, lambda: bool(findings) or self._is_stable())
        if not findings and not self._is_stable():
            self._cluster.observations.find(f"G6: groups are not stable: {self._condition()}")

    def _is_stable(self) -> bool:
        classic, consumers = self.classic[:-1], self.consumers[:-1]
        generations = {member.stable_generation for member in classic}
        shared = [place for member in classic for place in member.places or ()]
        owned = [partition for member in consumers for partition in member.owned]
        return (
            len(generations) == 1
            and None not in generations
            and sorted(shared) == sorted(PLACES)
            and all(member.has_all_it_is_to_have for member in consumers)
            and len(owned) == len(set(owned)) == self._partition_count
        )

    def _condition(self) -> str:
        classic = [(one.stable_generation, sorted(one.places or ())) for one in self.classic]
        consumers = [(one.epoch, sorted(one.owned)) for one in self.consumers]
        return f"classic {classic}, consumers {consumers}"

    def judge(self) -> None:
        """Puts every broken promise into the cluster's findings, once all is at rest."""
        self._cluster.observations.more_counts.update(self.seen.counts())
        faults = list(promises.faults_of(self.seen))
        for spot in self.offsets_spots:
            faults += self._faults_of_logs(spot)
        for fault in faults:
            self._cluster.observations.find(fault)

    def _faults_of_logs(self, spot: Spot) -> Iterator[str]:
        """Faults of what was stored; and G8 and C1: each replica's log, cleaned or not, gives what is coordinated."""
        held = settled.partitions_of(self._cluster, spot)
        (leader,) = (node for node, partition in held.items() if partition.is_leader)
        whole = promises.LogReader(self.seen.commits)
        yield from whole.faults(settled.original_log(self._cluster, spot, held[leader]).batches)
        contents = {f"the coordinator at {leader}": _contents(self._durable_of(leader, spot))}
        for node, partition in held.items():
            log = settled.log_of(self._cluster, node, spot, partition)
            contents[node] = _contents(promises.replay(log.batches))
        for name, one in contents.items():
            if one != _contents(whole.durable):
                yield f"G8: {spot} is not to {name} what was stored"

    def _durable_of(self, node: str, spot: Spot) -> DurableGroups:
        broker = self._cluster.machines[int(node.removeprefix("broker-"))].broker
        assert broker is not None
        coordinator = broker.services.groups.shards[spot.partition].coordinator
        assert coordinator is not None
        return coordinator._store.durable


def _contents(durable: DurableGroups) -> dict[str, tuple[object, ...]]:
    """Everything that is stored, to be compared."""
    return {
        group_id: (group.value, group.offsets, group.consumer and vars(group.consumer))
        for group_id, group in durable.groups.items()
    }
