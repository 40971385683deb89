"""One history: a cluster, its clients and its faults, all from one seed; then healing, and judgement."""

from __future__ import annotations

import enum
import gc
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from echoless.broker.config.loading import LogFlush
from tests.simulation.checkers import settled
from tests.simulation.cluster import Cluster, Topic
from tests.simulation.faults import FAULTS, FAULTS_WITH_LOST_POWER
from tests.simulation.groups.history import GroupHistory
from tests.simulation.groups.history import settings as group_settings
from tests.simulation.nemesis import Nemesis
from tests.simulation.observations import Observations, Spot
from tests.simulation.transactions import probes, swarm
from tests.simulation.transactions.faults import own_kinds
from tests.simulation.transactions.history import TransactionHistory
from tests.simulation.transactions.history import settings as transaction_settings
from tests.simulation.virtual_loop import LivelockError

COORDINATOR_URL: Final = "zookeeper://simulated"
FAULTS_OVER_S: Final = 12.0
SETTLES_WITHIN_S: Final = 180.0
AFTERWARDS_S: Final = 1.2
"""For the last high watermark to reach the followers."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Result:
    """The outcome of one history."""

    seed: int
    findings: Sequence[str]
    steps: int
    counts: Mapping[str, int]
    """How often what happened."""
    trace: Sequence[tuple[Any, ...]] = field(default=(), repr=False)

    @property
    def digest(self) -> str:
        """A hash of the whole trace: equal for equal runs."""
        return hashlib.sha256("\n".join(map(repr, self.trace)).encode()).hexdigest()[:16]

    def without_trace(self) -> Result:
        """Small enough to be sent between processes."""
        return replace(self, trace=())


class Kind(enum.Enum):
    """The subject of a history."""

    RECORDS = "records"
    COMPACTED = "compacted"
    """Records of compacted topics."""
    GROUPS = "groups"
    TRANSACTIONS = "transactions"


def play(
    seed: int,
    faults: Sequence[str] | None = None,
    tell: Callable[[tuple[Any, ...]], None] | None = None,
    kind: Kind = Kind.RECORDS,
) -> Result:
    """Plays the history of this seed; `faults`: only these kinds (default: all).

    `tell` hears of everything as it happens.
    """
    rng = Random(seed)
    was_collecting = gc.isenabled()
    gc.disable()  # when the collector runs is no business of the history
    try:
        with Cluster(
            rng.getrandbits(64),
            broker_count=rng.choice((3, 3, 3, 4)),
            settings=_settings(rng, kind),
        ) as cluster:
            cluster.observations.tell = tell
            try:
                _PLAYS[kind](cluster, rng, faults)
            except LivelockError as error:
                cluster.observations.find(f"livelock: {error}")
            except AssertionError as error:
                cluster.observations.find(str(error))
            observations = cluster.observations
            return Result(
                seed=seed,
                findings=observations.findings,
                steps=cluster.loop.steps,
                counts=_counts(observations),
                trace=observations.trace,
            )
    finally:
        if was_collecting:
            gc.enable()


def _settings(rng: Random, kind: Kind) -> dict[str, Any]:
    common = {
        "coordinator": COORDINATOR_URL,
        "log_flush": rng.choice((LogFlush.COMMIT, LogFlush.OS)),
        "min_insync_replicas": rng.choice((1, 1, 2)),
        "zookeeper_session_timeout_ms": rng.choice((1500, 3000, 6000)),
        "replica_lag_time_max_ms": rng.choice((1000, 2500)),
        "log_segment_bytes": rng.choice((700, 2000, 100_000)),
        "producer_state_batches_to_retain": rng.choice((5, 5, 2)),
        "producer_id_block_size": rng.choice((1, 3, 1000)),
        "auto_create_topics_enable": False,
    }
    if kind is Kind.RECORDS:
        return common
    common["log_cleaner_backoff_ms"] = 500
    more = _MORE_SETTINGS.get(kind)
    return common if more is None else {**common, **more(rng)}


def _play_compacted(cluster: Cluster, rng: Random, faults: Sequence[str] | None) -> None:
    factor = rng.choice((2, 3, 3))
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": rng.choice(("700", "2000")),
        "min.cleanable.dirty.ratio": rng.choice(("0.01", "0.5")),
    }
    cluster.compacted["t"] = None
    cluster.start([Topic(name="t", partitions=2, replication_factor=factor, config=config)])
    _add_clients(cluster, rng)
    _play_faults(cluster, rng, faults)


def _play_groups(cluster: Cluster, rng: Random, faults: Sequence[str] | None) -> None:
    groups = GroupHistory(cluster, rng)
    if groups.play(_kinds_of_faults(cluster, rng) if faults is None else faults) and has_settled(
        cluster
    ):
        settled.judge(cluster)
        groups.judge()


def _play_transactions(cluster: Cluster, rng: Random, faults: Sequence[str] | None) -> None:
    history = TransactionHistory(cluster, rng)
    if faults is None:
        kinds = _kinds_of_faults(cluster, rng)
        own = own_kinds(kinds, cluster.machines[1].config.log_flush)
        faults = swarm.faults(rng, [*kinds, *own])
    with probes.counting(history.seen.count):
        if history.play(faults) and has_settled(cluster):
            settled.judge(cluster)
            history.judge()


def _play(cluster: Cluster, rng: Random, faults: Sequence[str] | None) -> None:
    factor = rng.choice((2, 3, 3))
    retention = rng.choice(({}, {}, {}, {"retention.bytes": "1500", "segment.bytes": "700"}))
    topics = [Topic(name="t", partitions=2, replication_factor=factor, config=retention)]
    if rng.random() < 1 / 6:
        passing = Topic(name="passing", partitions=1, replication_factor=factor)
        cluster.passing[passing.name] = passing
        topics.append(passing)
    cluster.start(topics)
    if retention or rng.random() < 1 / 6:
        cluster.deletable["t"] = None
    _add_clients(cluster, rng)
    _play_faults(cluster, rng, faults)


def _play_faults(cluster: Cluster, rng: Random, faults: Sequence[str] | None) -> None:
    nemesis = Nemesis(cluster, rng, _kinds_of_faults(cluster, rng) if faults is None else faults)
    nemesis.plan(rng.randint(3, 10), FAULTS_OVER_S)
    findings = cluster.observations.findings
    cluster.run_for(FAULTS_OVER_S, lambda: bool(findings))
    if findings:
        return
    nemesis.heal()
    if has_settled(cluster):
        settled.judge(cluster)


_PLAYS: Final = {
    Kind.RECORDS: _play,
    Kind.COMPACTED: _play_compacted,
    Kind.GROUPS: _play_groups,
    Kind.TRANSACTIONS: _play_transactions,
}
_MORE_SETTINGS: Final[Mapping[Kind, Callable[[Random], dict[str, Any]]]] = {
    Kind.GROUPS: group_settings,
    Kind.TRANSACTIONS: transaction_settings,
}


def has_settled(cluster: Cluster) -> bool:
    """Waits until all is at rest and stays so for a moment; finds it wrong when that does not come."""
    findings, look = cluster.observations.findings, Settled(cluster)
    for pause_s in (AFTERWARDS_S, 0.0):  # an election may have been in progress
        cluster.run_for(SETTLES_WITHIN_S, lambda: bool(findings) or look.is_so())
        missing = look.what_is_missing()
        if missing is not None:
            cluster.observations.find(f"does not settle: {missing}")
        cluster.run_for(pause_s)
    return not findings


def _kinds_of_faults(cluster: Cluster, rng: Random) -> list[str]:
    if cluster.machines[1].config.log_flush is LogFlush.COMMIT:
        return list(FAULTS)
    if rng.random() < 1 / 4:
        return list(FAULTS_WITH_LOST_POWER)
    return [kind for kind in FAULTS if kind != "power"]


def _add_clients(cluster: Cluster, rng: Random) -> None:
    first, second, *passing = cluster.spots
    cluster.add_producer("p0", [first, second], batches=20, over_s=FAULTS_OVER_S)
    in_flight_max = rng.choice((5, 5, 8))
    cluster.add_producer(
        "p1", [first], batches=16, over_s=FAULTS_OVER_S, burst=8, in_flight_max=in_flight_max
    )
    cluster.add_producer("slow", [second], batches=5, over_s=FAULTS_OVER_S, burst=1)
    if rng.random() < 1 / 3:
        cluster.add_producer("p2", [second], batches=12, over_s=FAULTS_OVER_S, acks=1)
    if passing:
        cluster.add_producer("p3", passing, batches=12, over_s=FAULTS_OVER_S, acks=1)
    cluster.add_consumer("c0", [first, second])


class Settled:
    """Whether everything has come to rest as it should."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._next_look = 0.0

    def is_so(self) -> bool:
        """Cheap: looks only now and then."""
        now = self._cluster.loop.time()
        if now < self._next_look:
            return False
        self._next_look = now + 0.25
        return self.what_is_missing() is None

    def what_is_missing(self) -> str | None:
        """The first thing that is not yet as it should be."""
        cluster = self._cluster
        for machine in cluster.machines.values():
            if machine.service is None:
                return f"{machine.node} does not run"
        for lane in cluster.lanes:
            if not lane.is_done:
                return f"{lane} is not done"
        for spot in cluster.spots:
            missing = self._missing_of(spot)
            if missing is not None:
                return f"{spot}: {missing}"
        return None

    def _missing_of(self, spot: Spot) -> str | None:
        held = settled.partitions_of(self._cluster, spot)
        leaders = [partition for partition in held.values() if partition.is_leader]
        if len(leaders) != 1:
            return f"{len(leaders)} lead it"
        (leader,) = leaders
        if set(leader.isr) != set(leader.replicas) or len(held) != len(leader.replicas):
            return f"in sync are {leader.isr} of {leader.replicas}"
        end = leader.log.log_end_offset
        ends = {node: partition.log.log_end_offset for node, partition in held.items()}
        if leader.high_watermark != end or any(one != end for one in ends.values()):
            return f"high watermark {leader.high_watermark}, ends {ends}"
        for subscription in self._cluster.subscriptions:
            if subscription.spot == spot and subscription.position != end:
                return f"read up to {subscription.position} of {end}"
        return None


def _counts(observations: Observations) -> dict[str, int]:
    faults = Counter(f"fault: {line[2]}" for line in observations.trace if line[1] == "fault")
    acknowledged = [batch for batch in observations.batches if batch.acknowledged_at is not None]
    return {
        **faults,
        "batches acknowledged": len(acknowledged),
        "batches sent again": sum(len(batch.attempts) > 1 for batch in acknowledged),
        "batches polled": len(observations.polls),
        **observations.more_counts,
    }
