"""Compaction in a cluster of real brokers on a real ZooKeeper, whose replicas clean at times of their own."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.protocol.dedup import ProducerEntry
from echoless.protocol.record_batch import walk
from echoless.protocol.records import Record, iterate_records
from echoless.storage import paths
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.producers.snapshot import read_snapshot
from tests.cli.command import Command
from tests.support.cluster import Cluster, PartitionRow
from tests.support.keyed_writer import UNSURE, KeyedWriter
from tests.support.raw_client import RawConnection, nested

pytestmark = [pytest.mark.cluster, pytest.mark.crash, pytest.mark.slow, pytest.mark.time_limit(600)]

TOPIC = "prices"
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.05",
    "min.insync.replicas": "2",
    "segment.bytes": "30000",
}
SETTINGS = {"log_cleaner_backoff_ms": "200", "zookeeper_session_timeout_ms": "4000"}
LAGGING = {"log_cleaner_min_compaction_lag_ms": "20000"}
"""Broker 2 always cleans less than the others."""
PATIENCE_S = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, SETTINGS, brokers=4, settings_of={2: LAGGING}) as cluster:
        cluster.start()
        yield cluster


class Replicas:
    """The replicas of the one partition, by broker, and what they say of themselves."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def row(self, broker_id: int) -> PartitionRow:
        rows = self._cluster.rows(broker_id)
        return next(row for row in rows if row.topic == TOPIC)

    def cleaned_to(self, broker_id: int) -> int:
        """The offset that compaction has reached, by the checkpoint on disk."""
        checkpoint = self._cluster.brokers[broker_id].data_dir / "cleaner-offset-checkpoint"
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        return next((int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} 0 ")), 0)

    def wait_until_cleaned(self, *broker_ids: int) -> None:
        """Returns when each of them has cleaned something that was written since the call."""
        end = max(self.row(broker_id).log_end_offset for broker_id in broker_ids)
        for broker_id in broker_ids:
            self._cluster.wait_until(
                lambda broker_id=broker_id: self.cleaned_to(broker_id) > end,  # type: ignore[misc]
                f"broker {broker_id} has cleaned up to {end}",
                within_s=PATIENCE_S,
            )

    def wait_until_in_sync(self, *broker_ids: int) -> None:
        def is_so() -> bool:
            row = self._cluster.leader_rows().get((TOPIC, 0))
            return row is not None and row.isr == row.replicas == {*broker_ids}

        self._cluster.wait_until(is_so, f"{broker_ids} are in sync", within_s=PATIENCE_S)

    def wait_until_alike(self, *broker_ids: int) -> None:
        """Returns when all of them know that everything is committed: no one writes."""

        def is_so() -> bool:
            rows = [self.row(broker_id) for broker_id in broker_ids]
            ends = {end for row in rows for end in (row.high_watermark, row.log_end_offset)}
            return len(ends) == 1

        self._cluster.wait_until(is_so, "all ends are equal", within_s=PATIENCE_S)

    def kill_and_restart(self, broker_id: int) -> None:
        """Returns when every replica is in sync again."""
        replicas = self.row(broker_id).replicas
        self._cluster.kill(broker_id)
        self._cluster.start_broker(broker_id)
        self.wait_until_in_sync(*replicas)

    def cut_off_the_tail_of(self, leader: int, writer: KeyedWriter) -> None:
        """Has the leader append what no follower has, and killed; it cuts that off again after its restart."""
        cluster, followers = self._cluster, self.row(leader).isr - {leader}
        client = writer.unsure_client()
        for follower in followers:
            cluster.pause(follower)
        # The first one may be in the answer to a fetch that was waiting, the others are in none.
        writer.write_unsure(client, 3)
        cluster.kill(leader)
        for follower in followers:
            cluster.resume(follower)
        cluster.wait_until(
            lambda: cluster.leader(TOPIC, 0) in followers, "another leads", within_s=PATIENCE_S
        )
        cluster.start_broker(leader)
        self.wait_until_in_sync(leader, *followers)
        assert self.cuts(leader) > 0

    def cuts(self, broker_id: int) -> float:
        """How often the broker has cut off a tail that its leader did not have, since its start."""
        address = self._cluster.brokers[broker_id].admin_address
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        (line,) = [line for line in lines if line.startswith("echoless_log_cuts_total ")]
        return float(line.split()[1])

    async def move(self, *replicas: int) -> None:
        """Returns when these brokers have the replicas, all in sync."""
        connection = await RawConnection.open(self._cluster.brokers[replicas[0]].kafka_address)
        api = "alter_partition_reassignments"
        row = nested(api, 0, "ReassignablePartition")(partition_index=0, replicas=replicas)
        topic = nested(api, 0, "ReassignableTopic")(name=TOPIC, partitions=(row,))
        response = await connection.call(api, 0, topics=(topic,))
        await connection.close()
        assert response.responses[0].partitions[0].error_code == 0
        self.wait_until_in_sync(*replicas)


def create(cluster: Cluster) -> Replicas:
    """The topic on brokers 1 to 3, of which 1 leads."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    topic = NewTopic(TOPIC, 1, config=CONFIG, replica_assignment=[[1, 2, 3]])
    admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
    replicas = Replicas(cluster)
    replicas.wait_until_in_sync(1, 2, 3)
    return replicas


def test_replicas_that_clean_alone_agree_whatever_happens(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed, cut, and copied anew: each replica has each key's latest value and every producer's window."""
    replicas = create(cluster)
    writer = KeyedWriter(cluster.bootstrap, TOPIC, seed=1, records_per_s=400)
    writer.write_with_short_lives(producers=4, batches=7)
    with writer:
        replicas.wait_until_cleaned(1, 2, 3)
        replicas.kill_and_restart(3)
        replicas.kill_and_restart(1)
        cut = []
        for _ in range(2):
            replicas.wait_until_cleaned(1, 3)
            assert replicas.cleaned_to(2) < min(map(replicas.cleaned_to, (1, 3)))
            cut.append(cluster.wait_for_leader(TOPIC, 0))
            replicas.cut_off_the_tail_of(cut[-1], writer)
        assert len({*cut}) == 2
        assert 2 in cut
        asyncio.run(replicas.move(1, 2, 4))
        replicas.wait_until_cleaned(1, 4)
        replicas.kill_and_restart(cluster.wait_for_leader(TOPIC, 0))
    assert not writer.failures
    assert len(writer.acknowledged) == writer.sent
    replicas.wait_until_alike(1, 2, 4)
    for broker_id in cluster.live:
        assert cluster.stop(broker_id) == 0
    check(cluster, (1, 2, 4), writer)
    for broker_id in (1, 2, 4):
        data_dir = cluster.brokers[broker_id].data_dir
        for command in (["verify", data_dir], ["dump", data_dir / f"{TOPIC}-0", "--limit", 0]):
            ran = Command(capsys)(*command, "--json")
            assert ran.code == 0, ran.out + ran.err


def check(cluster: Cluster, broker_ids: tuple[int, ...], writer: KeyedWriter) -> None:
    """Compares each replica with what was acknowledged, and with the others."""
    found: list[Any] = []
    for broker_id in broker_ids:
        directory = cluster.brokers[broker_id].data_dir / f"{TOPIC}-0"
        records = read_records(directory)
        stored = {record.offset: (record.key, record.value) for record in records}
        assert len(stored) == len(records) < writer.sent, f"broker {broker_id} was not cleaned"
        certain = {place: record for place, record in stored.items() if record[0] != UNSURE}
        assert certain.items() <= writer.acknowledged.items()
        table = {key: (offset, value) for offset, (key, value) in sorted(certain.items())}
        assert table == writer.table()
        found.append(read_producers(directory))
    assert found == found[:1] * len(broker_ids)
    assert len(found[0]) == 5
    assert all(len(batches) == 5 for _, batches in found[0].values())


def read_records(directory: Path) -> list[Record]:
    """Every record of a replica, in the order of its files."""
    records: list[Record] = []
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        for position, header in walk(data):
            records += iterate_records(data[position : position + header.size])
    return records


def read_producers(directory: Path) -> dict[int, tuple[int, list[tuple[int, int, int]]]]:
    """Epochs, sequences and offsets of the producers' windows, as a clean stop has written them."""
    newest = max(int(path.stem) for path in directory.glob("*.snapshot"))
    path = paths.offset_file(str(directory), newest, paths.SNAPSHOT)
    return {
        producer_id: (entry.producer_epoch, windows(entry))
        for producer_id, entry in read_snapshot(OsFileSystem(), path).items()
    }


def windows(entry: ProducerEntry) -> list[tuple[int, int, int]]:
    return [(one.last_sequence, one.base_offset, one.last_offset) for one in entry.batches]
