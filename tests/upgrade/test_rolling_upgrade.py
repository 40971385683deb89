"""Rolling upgrades from earlier releases, one broker at a time under load, and back again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from echoless.testkit.native import Native
from tests.cli.command import Command
from tests.support.cluster import Cluster
from tests.support.echoless import SOURCES
from tests.support.keyed_writer import KeyedWriter
from tests.toolchain import require
from tests.upgrade.group_reader import GroupReader
from tests.upgrade.releases import Release
from tests.upgrade.rolling import ORDERS, check_log, roll

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.time_limit(300)]

PRICES: Final = "prices"
COMPACTED: Final = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.05",
    "segment_bytes": "30000",
}
RECORDS_PER_S: Final = 150
BY_HAND: Final = {"feature_upgrades": "manual"}


@pytest.fixture
def echoless(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@contextmanager
def cluster_of(
    release: Release, directory: Path, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Three brokers of an earlier release."""
    require(release.tool_name)
    minimum = {"min_insync_replicas": "2", **(settings or {})}
    with Cluster(directory, minimum, tree=release.tree) as cluster:
        cluster.start()
        yield cluster


def check_group(reader: GroupReader, writer: KeyedWriter) -> None:
    """The group has read every record, and its commits never went back."""
    assert reader.read[0] == writer.acknowledged
    assert reader.went_back == []
    assert reader.stored() == reader.committed == {0: len(writer.acknowledged)}


def check_table(cluster: Cluster, writer: KeyedWriter) -> None:
    """The newest record of each key is left."""
    assert not writer.failures
    with GroupReader(cluster.bootstrap, PRICES, "table") as reader:
        cluster.wait_until(lambda: bool(reader.read))
    newest = {key: value for _, (key, value) in sorted(reader.read[0].items())}
    wanted = {key: value for _, (key, value) in sorted(writer.acknowledged.items())}
    for table in (newest, wanted):
        for key in [key for key, value in table.items() if value is None]:
            del table[key]
    assert newest == wanted
    reader.close()


def was_cleaned(cluster: Cluster, broker_id: int) -> bool:
    """Whether compaction has been through the log of the compacted topic on a broker."""
    checkpoint = cluster.brokers[broker_id].data_dir / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return any(line.startswith(f"{PRICES} 0 ") for line in lines)


def test_the_last_release_is_upgraded_and_back_under_load(
    tmp_path: Path, echoless: Command
) -> None:
    """Producers, a group and compaction go on through both, each record is stored once, and no commit goes back."""
    with cluster_of(Release.V0_2, tmp_path, {"log_cleaner_backoff_ms": "300"}) as cluster:
        cluster.create_topic(ORDERS, 1)
        cluster.create_topic(PRICES, 1, **COMPACTED)
        orders = KeyedWriter(cluster.bootstrap, ORDERS, seed=1, records_per_s=RECORDS_PER_S)
        prices = KeyedWriter(cluster.bootstrap, PRICES, seed=2, records_per_s=RECORDS_PER_S)
        reader = GroupReader(cluster.bootstrap, ORDERS, "readers")
        with reader, orders, prices:
            cluster.wait_until(lambda: bool(reader.committed), "the group has committed")
            roll(cluster, [1, 2, 3], SOURCES, BY_HAND)
            cluster.wait_until(
                lambda: all(was_cleaned(cluster, one) for one in cluster.brokers), "compacted"
            )
            described = echoless(
                *("features", "describe", "--json", "--bootstrap-server", cluster.bootstrap)
            )
            assert described.json[0]["finalized"] == 0
            roll(cluster, [3, 2, 1], Release.V0_2.tree)
        check_log(cluster, orders)
        check_group(reader, orders)
        check_table(cluster, prices)
        reader.close()


def test_a_cluster_with_a_broker_that_knows_no_groups_has_none(
    tmp_path: Path, echoless: Command
) -> None:
    """Nothing is stored that would end 0.1.0, whoever asks; groups are served once all brokers are new."""
    with cluster_of(Release.V0_1, tmp_path) as cluster:
        cluster.create_topic(ORDERS, 1)
        new = ("--bootstrap-server", cluster.brokers[1].kafka_address)
        with KeyedWriter(cluster.bootstrap, ORDERS, seed=1, records_per_s=RECORDS_PER_S) as orders:
            roll(cluster, [1], SOURCES)
            refused = echoless(
                "topics", "create", PRICES, "--config", "cleanup.policy=compact", *new
            )
            assert "not all brokers of the cluster are known to be of 0.3.0" in refused.err
            assert (
                "COORDINATOR_NOT_AVAILABLE" in echoless("groups", "describe", "readers", *new).err
            )
            assert "upgrade them first" in echoless("features", "upgrade", *new).err
            roll(cluster, [1], Release.V0_1.tree, is_emptied=True)
            roll(cluster, [1, 2, 3], SOURCES)
            with GroupReader(cluster.bootstrap, ORDERS, "readers") as reader:
                cluster.wait_until(lambda: bool(reader.committed), "the group has committed")
            assert reader.stored() == reader.committed
            reader.close()
        check_log(cluster, orders)


def test_a_broker_that_cannot_note_producer_ids_is_named(tmp_path: Path) -> None:
    """A new broker beside those of 0.2.0 claims its block, says once of whom it is not certain, and disturbs them in nothing."""
    with cluster_of(Release.V0_2, tmp_path) as cluster:
        cluster.create_topic(ORDERS, 1)
        with KeyedWriter(cluster.bootstrap, ORDERS, seed=1, records_per_s=RECORDS_PER_S) as orders:
            roll(cluster, [1], SOURCES)
            new = cluster.brokers[1]
            assert Native(new.native_address).init_producer_id() >= 0
            for old in (2, 3):
                said = f"broker {old} is of an earlier release, and notes no producer ids"
                cluster.wait_until(lambda said=said: said in new.process.log(), said)
                assert new.process.log().count(said) == 1
                assert "Traceback" not in cluster.brokers[old].process.log()
            roll(cluster, [2, 3], SOURCES)
        check_log(cluster, orders)
