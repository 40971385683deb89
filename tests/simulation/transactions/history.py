"""One history of transactions: producers of both generations, copiers and readers, and the cluster's faults.

`python -m tests.simulation --kind transactions` plays others.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.simulation.checkers import settled
from tests.simulation.cluster import Cluster, Topic
from tests.simulation.nemesis import Nemesis
from tests.simulation.observations import Spot
from tests.simulation.transactions import swarm
from tests.simulation.transactions.copier import Copier, fetch_committed
from tests.simulation.transactions.faults import TRANSACTION_FAULTS
from tests.simulation.transactions.port import KafkaPort
from tests.simulation.transactions.reader import PartitionReader
from tests.simulation.transactions.seen import SeenTransactions
from tests.simulation.transactions.writer import Habits, Writer
from tests.support.raw_batches import split_log
from tests.transactions.history.checker import check
from tests.transactions.history.events import History, Place, Seen, Stored
from tests.transactions.history.stored import read_stored

FAULTS_OVER_S: Final = 12.0
ENDS_WITHIN_S: Final = 120.0
LATE_S_MAX: Final = 15.0
INPUT: Final = Spot("t", 0)
COPIES: Final = Spot("copies", 0)
WRITTEN: Final = (INPUT, Spot("t", 1))
SPOTS: Final = (*WRITTEN, COPIES)


def settings(rng: Random) -> dict[str, Any]:
    """The configuration of the brokers, besides what all histories have."""
    return {
        "transaction_state_log_num_partitions": rng.choice((1, 2)),
        "transaction_commit_timeout_ms": rng.choice((500, 2000)),
        "offsets_topic_num_partitions": 1,
        "offsets_commit_timeout_ms": 2000,
    }


class TransactionHistory:
    """The transactions of one history."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.seen = SeenTransactions(cluster.observations)
        self.writers: list[Writer] = []
        self._readers: list[PartitionReader] = []

    # --- playing ---

    def play(self, kinds: Sequence[str]) -> bool:
        """Plays it until all transactions have ended. Returns whether no promise was broken yet."""
        cluster, rng = self._cluster, self._rng
        cluster.network.late_s_max = LATE_S_MAX
        self._begin(rng.choice((2, 3, 3)))
        nemesis = Nemesis(cluster, rng, kinds, TRANSACTION_FAULTS)
        nemesis.plan(rng.randint(3, 10), FAULTS_OVER_S)
        findings = cluster.observations.findings
        cluster.run_for(FAULTS_OVER_S, lambda: bool(findings))
        if not findings:
            nemesis.heal()
            self._end()
        return not findings

    def _begin(self, factor: int) -> None:
        cluster = self._cluster
        cluster.start(
            [
                Topic(name="t", partitions=2, replication_factor=factor),
                Topic(name="copies", partitions=1, replication_factor=factor),
            ]
        )
        cluster.transactional |= dict.fromkeys(("t", "copies"))
        self._create_internal_topics()
        self._add_cast()
        self._add_readers()

    def _create_internal_topics(self) -> None:
        """Creates them as the first clients do, so that their partitions are watched from the beginning."""
        cluster = self._cluster
        service = next(iter(cluster.machines.values())).service
        assert service is not None
        services = service.broker.services
        for topic, name in (
            (services.transactions.topic, TRANSACTION_STATE),
            (services.groups.topic, CONSUMER_OFFSETS),
        ):
            created = service.process.spawn(topic.until_created())
            cluster.run_until_true(created.done, 60.0)
            spots = [Spot(name, index) for index in range(created.result())]
            cluster.replication_factors[name] = len(cluster.state_of(spots[0])["isr"])
            cluster.spots += spots

    def _add_cast(self) -> None:
        """Producers of both generations, a copier, and now and then a second program with the same id."""
        rng = self._rng
        generations = rng.choice(((1, 2), (2, 1), (1, 1), (2, 2)))
        for number, (name, generation) in enumerate(zip("ab", generations, strict=True)):
            spots = rng.choice((WRITTEN, SPOTS[:1], WRITTEN))
            for twin in range(rng.choice((1, 2))):
                own = rng.choice((1, 2)) if rng.random() < 1 / 8 else generation
                self._add_writer(f"w{number}{twin}", name, swarm.habits(rng, own), spots)
        generation = rng.choice((1, 2))
        for twin in range(rng.choice((0, 1, 1, 2))):
            self._add_copier(f"copier{twin}", "c", swarm.habits(rng, generation))

    def _port(self, name: str) -> KafkaPort:
        return KafkaPort(self._cluster.new_client(name), self.seen, self._rng.choice((0.5, 2, 4)))

    def _add_writer(
        self, name: str, transactional_id: str, habits: Habits, spots: Sequence[Spot]
    ) -> None:
        writer = Writer(self._port(name), transactional_id, habits, spots)
        self.writers.append(writer)
        writer.client.process.spawn(writer.run())

    def _add_copier(self, name: str, transactional_id: str, habits: Habits) -> None:
        copier = Copier(self._port(name), transactional_id, habits, INPUT, COPIES)
        self.writers.append(copier)
        copier.client.process.spawn(copier.run())

    def _add_readers(self) -> None:
        for name, found, is_committed in (
            ("committed", self.seen.readers, True),
            ("uncommitted", self.seen.uncommitted, False),
        ):
            seen = found.setdefault(name, [])
            for spot in SPOTS:
                port = KafkaPort(self._cluster.new_client(name), self.seen, 4.0)
                reader = PartitionReader(port, spot, is_committed=is_committed)
                self._readers.append(reader)
                port.client.process.spawn(reader.run(seen))

    # --- the end ---

    def _end(self) -> None:
        """Every transaction ends, and readers of committed records come to the end."""
        for writer in self.writers:
            writer.is_wanted = False
        self._wait(ENDS_WITHIN_S)
        self._cluster.network.lose_late()
        self._wait(ENDS_WITHIN_S)

    def _wait(self, within_s: float) -> None:
        findings = self._cluster.observations.findings
        self._cluster.run_for(within_s, lambda: bool(findings) or self.what_is_missing() is None)
        missing = self.what_is_missing()
        if missing is not None and not findings:
            self._cluster.observations.find(f"transactions do not end: {missing}")

    def what_is_missing(self) -> str | None:
        """The first thing that has not ended."""
        for writer in self.writers:
            if not writer.is_done:
                return f"{writer} is not done"
        for spot in SPOTS:
            leader = settled.leader_of(self._cluster, spot)
            if leader is None:
                return f"{spot} has no leader"
            end = leader.log.log_end_offset
            if leader.last_stable_offset != end:
                return f"{spot} is stable up to {leader.last_stable_offset} of {end}"
        for reader in self._readers:
            leader = settled.leader_of(self._cluster, reader.spot)
            if leader is None or reader.position < leader.log.log_end_offset:
                return f"{reader} is at {reader.position}"
        return None

    # --- judgement ---

    def judge(self) -> None:
        """Puts every broken promise into the cluster's findings, once all is at rest."""
        observations = self._cluster.observations
        final = self._read_to_the_ends()
        history = History(
            transactions=self.seen.transactions,
            readers=self.seen.readers,
            final=final,
            log={tuple(spot): self._stored(spot) for spot in SPOTS},
            inputs=self._committed_inputs(),
        )
        for anomaly, words in check(history).broken:
            observations.find(f"{anomaly.name}: {words}")
        self.seen.happened.update(
            f"transactions {one.outcome.value}" for one in self.seen.transactions
        )
        observations.more_counts.update(self.seen.happened)

    def _read_to_the_ends(self) -> dict[Place, list[tuple[int, str]]]:
        found: dict[Place, list[tuple[int, str]]] = {}
        for spot in SPOTS:
            leader = settled.leader_of(self._cluster, spot)
            assert leader is not None
            seen: list[Seen] = []
            port = KafkaPort(self._cluster.new_client("final"), self.seen, 4.0)
            reader = PartitionReader(port, spot, is_committed=True)
            reading = port.client.process.spawn(reader.read_to(leader.log.log_end_offset, seen))
            self._cluster.run_until_true(reading.done, 60.0)
            found[tuple(spot)] = [(one.offset, one.value) for one in seen]
        return found

    def _committed_inputs(self) -> dict[Place, int]:
        if not any(isinstance(writer, Copier) for writer in self.writers):
            return {}
        client = self._cluster.new_client("final offsets")
        leader = settled.leader_of(self._cluster, Spot(CONSUMER_OFFSETS, 0))
        assert leader is not None
        node = f"broker-{leader.leader_id}"
        asked = client.process.spawn(fetch_committed(client, node, INPUT))
        self._cluster.run_until_true(asked.done, 60.0)
        offset = asked.result()
        assert offset is not None, "the group's offset is not stable at the end"
        return {tuple(INPUT): offset}

    def _stored(self, spot: Spot) -> list[Stored]:
        """The records of the leader's log as it lies on its disk."""
        leader = settled.leader_of(self._cluster, spot)
        assert leader is not None
        log = settled.log_of(self._cluster, f"broker-{leader.leader_id}", spot, leader)
        return read_stored(split_log(b"".join(batch.data for batch in log.batches)))
