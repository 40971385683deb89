"""One history of transactions: producers of both generations, copiers and readers, and the cluster's faults.

`python -m tests.simulation --kind transactions` plays others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from echoless.broker.partitions.partition import Partition
from echoless.protocol.record_batch import read_header
from echoless.protocol.records import Record, build_batch
from echoless.protocol.state_records.partitioner import partition_of
from echoless.protocol.state_records.transaction_records import (
    TransactionStatus,
    TransactionValue,
    write_transaction_key,
    write_transaction_value,
)
from echoless.storage.producers.open_transactions import OpenTransactions
from tests.simulation.checkers import settled
from tests.simulation.checkers import transactions as promises
from tests.simulation.checkers.logs import Batch, read_batches
from tests.simulation.clients import Client
from tests.simulation.cluster import Cluster, Topic
from tests.simulation.nemesis import Nemesis
from tests.simulation.observations import Spot
from tests.simulation.transactions import swarm
from tests.simulation.transactions.copier import Copier, fetch_committed
from tests.simulation.transactions.faults import TRANSACTION_FAULTS
from tests.simulation.transactions.left_broken import LeftBroken, leave_one_broken
from tests.simulation.transactions.port import KafkaPort
from tests.simulation.transactions.reader import PartitionReader
from tests.simulation.transactions.seen import SeenTransactions
from tests.simulation.transactions.writer import Habits, Writer
from tests.support.raw_batches import split_log
from tests.transactions.history.checker import check
from tests.transactions.history.events import History, Place, Seen, Stored
from tests.transactions.history.stored import read_stored

FAULTS_OVER_S: Final = 12.0
ASK_AGAIN_S: Final = 0.1
ENDS_WITHIN_S: Final = 120.0
LATE_S_MAX: Final = 15.0
INPUT: Final = Spot("t", 0)
COPIES: Final = Spot("copies", 0)
WRITTEN: Final = (INPUT, Spot("t", 1))
SPOTS: Final = (*WRITTEN, COPIES)
PASSING: Final = Spot("passing", 0)
LOOKS_EVERY_S: Final = 0.4
LAST_EPOCHS: Final = 32_764
_NOTHING: Final = OpenTransactions()


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

    def __init__(self, cluster: Cluster, rng: Random, spots: Sequence[Spot] = SPOTS) -> None:
        """`spots`: the partitions that are written and judged."""
        self._spots = spots
        self._cluster = cluster
        self._rng = rng
        self.seen = SeenTransactions(cluster.observations)
        self.writers: list[Writer] = []
        self._readers: list[PartitionReader] = []
        self._left_broken: LeftBroken | None = None

    # --- playing ---

    def play(self, kinds: Sequence[str]) -> bool:
        """Plays it until all transactions have ended. Returns whether no promise was broken yet."""
        cluster, rng = self._cluster, self._rng
        cluster.network.late_s_max = LATE_S_MAX
        factor = rng.choice((2, 3, 3))
        self._begin(factor)
        for number in range(int(FAULTS_OVER_S / LOOKS_EVERY_S)):
            cluster.loop.call_later(number * LOOKS_EVERY_S, self._look_at_stable_ends)
        nemesis = Nemesis(cluster, rng, kinds, TRANSACTION_FAULTS)
        nemesis.plan(rng.randint(3, 10), FAULTS_OVER_S)
        findings = cluster.observations.findings
        cluster.run_for(FAULTS_OVER_S, lambda: bool(findings))
        if not findings:
            nemesis.heal()
            least = cluster.machines[1].config.min_insync_replicas
            if factor > least and rng.random() < 1 / 2:
                self._left_broken = leave_one_broken(cluster, rng)
            if self._left_broken is not None:
                self.seen.count("one machine is left broken")
            self.end()
        return not findings

    def _begin(self, factor: int) -> None:
        cluster = self._cluster
        topics = [
            Topic(name="t", partitions=2, replication_factor=factor),
            Topic(name="copies", partitions=1, replication_factor=factor),
        ]
        if self._rng.random() < 1 / 4:
            passing = Topic(name=PASSING.topic, partitions=1, replication_factor=factor)
            cluster.passing[passing.name] = passing
            topics.append(passing)
        cluster.start(topics)
        self.watch()
        if self._rng.random() < 1 / 4:
            self._begin_at_last_epochs("a")
        self._add_cast()

    def watch(self) -> None:
        """Creates the internal topics, and has readers of everything begin."""
        self._cluster.transactional |= {spot.topic: None for spot in self._spots}
        self._create_internal_topics()
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

    def _begin_at_last_epochs(self, transactional_id: str) -> None:
        """Stores an id whose epochs are nearly used up, and has the coordinator begin anew with it."""
        cluster = self._cluster
        count = sum(spot.topic == TRANSACTION_STATE for spot in cluster.spots)
        spot = Spot(TRANSACTION_STATE, partition_of(transactional_id, count))
        leader = self.leader_of(spot)
        assert leader is not None
        service = cluster.machines[leader.leader_id].service
        assert service is not None

        async def store() -> None:
            services = service.broker.services
            value = TransactionValue(
                await services.producer_ids.wait_for_producer_id(),
                *(LAST_EPOCHS, 3000, TransactionStatus.EMPTY),
                update_ms=services.clock.wall_ms(),
            )
            key, data = write_transaction_key(transactional_id), write_transaction_value(value)
            batch = build_batch([Record(0, value.update_ms, key, data)])
            leader.append_state(batch, read_header(batch), services.clock.steady_ms())

        stored = service.process.spawn(store())
        cluster.run_until_true(stored.done, 60.0)
        cluster.begin_next_epoch(spot)

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
        return KafkaPort(
            self._cluster.new_client(name), self.seen, self._rng.choice((0.5, 2, 4, 8))
        )

    def _add_writer(
        self, name: str, transactional_id: str, habits: Habits, spots: Sequence[Spot]
    ) -> None:
        writer = Writer(self._port(name), transactional_id, habits, spots)
        if self._cluster.passing and self._rng.random() < 1 / 2:
            writer = Writer(writer.port, transactional_id, habits, [*spots, PASSING])
        writer.unwatched = frozenset({PASSING.topic})
        self.writers.append(writer)
        writer.client.process.spawn(writer.run())

    def _add_copier(self, name: str, transactional_id: str, habits: Habits) -> None:
        copier = Copier(self._port(name), transactional_id, habits, INPUT, COPIES)
        self.writers.append(copier)
        copier.client.process.spawn(copier.run())

    def _add_readers(self) -> None:
        """Readers of committed records, and in some histories of all records, which cost as much and find little else."""
        found = [("committed", self.seen.readers, True)]
        if self._rng.random() < 1 / 4:
            found.append(("uncommitted", self.seen.uncommitted, False))
        for name, by_name, is_committed in found:
            seen = by_name.setdefault(name, [])
            for spot in self._spots:
                port = KafkaPort(self._cluster.new_client(name), self.seen, 4.0)
                reader = PartitionReader(port, spot, is_committed=is_committed)
                self._readers.append(reader)
                port.client.process.spawn(reader.run(seen))

    # --- the end ---

    def end(self) -> None:
        """Every transaction ends, and readers of committed records come to the end."""
        for writer in self.writers:
            writer.is_wanted = False
        self._wait(ENDS_WITHIN_S)
        if self._left_broken is not None:
            self._left_broken.mend()
            self._left_broken = None
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
        for spot in (*self._spots, Spot(CONSUMER_OFFSETS, 0)):
            leader = self.leader_of(spot)
            if leader is None:
                return f"{spot} has no leader"
            end = leader.log.log_end_offset
            if leader.last_stable_offset != end:
                return f"{spot} is stable up to {leader.last_stable_offset} of {end}"
        for reader in self._readers:
            leader = self.leader_of(reader.spot)
            if leader is None or reader.position < leader.log.log_end_offset:
                return f"{reader} is at {reader.position}"
        return None

    def leader_of(self, spot: Spot) -> Partition | None:
        """The replica of the broker that leads, as the state node has it."""
        leader_id = self._cluster.state_of(spot).get("leader")
        machine = self._cluster.machines.get(leader_id) if isinstance(leader_id, int) else None
        is_broken = self._left_broken is not None and machine is self._left_broken.machine
        broker = None if machine is None or is_broken else machine.broker
        partition = None if broker is None else broker.partitions.get(spot)
        return partition if partition is not None and partition.is_leader else None

    def _look_at_stable_ends(self) -> None:
        """7: at any time the open transactions and the last stable offset of a leader are those of its log."""
        cluster = self._cluster
        for spot in self._spots:
            for node, partition in settled.partitions_of(cluster, spot).items():
                if not partition.is_leader or partition.log.log_start_offset:
                    continue
                log = settled.log_of(cluster, node, spot, partition)
                opened, stable = promises.stable_end(log.batches, partition.high_watermark)
                known = dict((partition.log.producers.open_transactions or _NOTHING).items())
                if known != opened or partition.last_stable_offset != stable:
                    cluster.observations.find(
                        f"7: {spot} at {node}: open {known}, stable {partition.last_stable_offset}; its log says "
                        f"{opened}, {stable}"
                    )

    # --- judgement ---

    def judge(self) -> None:
        """Puts every broken promise into the cluster's findings, once all is at rest."""
        observations = self._cluster.observations
        for fault in self._faults_of_logs():
            observations.find(fault)
        final = self._read_to_the_ends()
        history = History(
            transactions=self.seen.transactions,
            readers=self.seen.readers,
            final=final,
            log={tuple(spot): self._stored(spot) for spot in self._spots},
            inputs=self.committed_inputs(),
        )
        for fault in promises.everything_is_read(self.seen.uncommitted, history.log):
            observations.find(fault)
        for anomaly, words in check(history).broken:
            observations.find(f"{anomaly.name}: {words}")
        self.seen.happened.update(
            f"transactions {one.outcome.value}" for one in self.seen.transactions
        )
        observations.more_counts.update(self.seen.happened)

    def _faults_of_logs(self) -> Iterator[str]:
        """Yields what is wrong with `__transaction_state`, the partitions, and what clients were given."""
        cluster, seen = self._cluster, self.seen
        state = promises.StateLog()
        for spot in cluster.spots:
            if spot.topic == TRANSACTION_STATE:
                leader = self.leader_of(spot)
                assert leader is not None
                log = settled.original_log(cluster, spot, leader)
                yield from state.faults(log.batches)
                self._count_cut_off(spot, log.batches)
        numbers: dict[Spot, dict[tuple[int, int], int]] = {}
        for spot in self._spots:
            leader = self.leader_of(spot)
            assert leader is not None
            batches = settled.log_of(cluster, f"broker-{leader.leader_id}", spot, leader).batches
            data = promises.DataLog(spot, state.transactions)
            yield from data.faults(batches)
            numbers[spot] = data.numbers
            if data.is_interleaved:
                seen.count("H18 interleaved transactions")
            self._count_cut_off(spot, batches)
        yield from promises.added_before_written(cluster.observations.appends, numbers)
        yield from promises.fenced_stay_out(seen.given, seen.transactions)
        yield from promises.identities_are_unique(seen.given)
        seen.happened.update(state.transitions)
        seen.happened.update({f"ended {end}": count for end, count in state.ends.items()})
        if any(one.identity.epoch >= LAST_EPOCHS for one in seen.given):
            seen.count("H14 epoch_edge")

    def _count_cut_off(self, spot: Spot, batches: Sequence[Batch]) -> None:
        """Counts decisions and markers that a disk took, and that are not in the log that is left."""
        kept = {(one.leader_epoch, one.base_offset) for one in batches}
        directory = f"{spot.topic}-{spot.partition}"
        for append in self._cluster.observations.appends:
            if append.directory != directory:
                continue
            for batch in read_batches(append.data):
                if (batch.leader_epoch, batch.base_offset) in kept:
                    continue
                if batch.is_control:
                    self.seen.count("H6 a marker is cut off")
                elif spot.topic == TRANSACTION_STATE and any(
                    value is not None and value.status.is_prepared
                    for _, value in promises.records_of(batch.data)
                ):
                    self.seen.count("H5 a prepare record is cut off")

    def _read_to_the_ends(self) -> dict[Place, list[tuple[int, str]]]:
        found: dict[Place, list[tuple[int, str]]] = {}
        for spot in self._spots:
            leader = self.leader_of(spot)
            assert leader is not None
            seen: list[Seen] = []
            port = KafkaPort(self._cluster.new_client("final"), self.seen, 4.0)
            reader = PartitionReader(port, spot, is_committed=True)
            reading = port.client.process.spawn(reader.read_to(leader.log.log_end_offset, seen))
            self._cluster.run_until_true(reading.done, 60.0)
            found[tuple(spot)] = [(one.offset, one.value) for one in seen]
        return found

    def committed_inputs(self) -> dict[Place, int]:
        """The offset up to which copiers have committed what they read; nothing without a copier."""
        if not any(isinstance(writer, Copier) for writer in self.writers):
            return {}
        client = self._cluster.new_client("final offsets")
        until = self._cluster.loop.time() + ENDS_WITHIN_S
        offset: int | None = None
        while offset is None and self._cluster.loop.time() < until:
            offset = self._ask_for_input(client)
        assert offset is not None, "the group's offset is not stable at the end"
        return {tuple(INPUT): offset}

    def _ask_for_input(self, client: Client) -> int | None:
        """None: not now. A coordinator that was cut off may doubt its session again, a moment after it has returned."""
        leader = self.leader_of(Spot(CONSUMER_OFFSETS, 0))
        assert leader is not None
        node = f"broker-{leader.leader_id}"
        asked = client.process.spawn(fetch_committed(client, node, INPUT))
        self._cluster.run_until_true(asked.done, 60.0)
        if asked.result() is None:
            self._cluster.run_for(ASK_AGAIN_S)
        return asked.result()

    def _stored(self, spot: Spot) -> list[Stored]:
        """The records of the leader's log as it lies on its disk."""
        leader = self.leader_of(spot)
        assert leader is not None
        log = settled.log_of(self._cluster, f"broker-{leader.leader_id}", spot, leader)
        return read_stored(split_log(b"".join(batch.data for batch in log.batches)))
