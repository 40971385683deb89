"""`echoless verify` and the directory as a whole: small files, and what the coordinator says of it."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from echoless.broker.config.loading import Config
from echoless.broker.environment import COORDINATION_FILE
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.tree.zookeeper import ZooKeeperNodeTree
from echoless.protocol.dedup import Duplicate, UnknownProducerId
from echoless.protocol.record_batch import read_header
from echoless.storage import paths
from echoless.storage.appended import Appended
from echoless.storage.log_config import LogConfig
from tests.cli.command import Command
from tests.cli.data_directory import open_directory
from tests.storage.log_workload import make_batch
from tests.support.in_process import in_process
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.slow

SMALL_FILES = [
    paths.META_PROPERTIES,
    paths.CLOCK_CHECKPOINT,
    paths.PRODUCER_ID_CHECKPOINT,
    COORDINATION_FILE,
]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The directory of a stopped broker with a topic of two partitions."""
    run_broker(tmp_path, "orders")
    return tmp_path / "data"


def run_broker(directory: Path, topic: str | None = None, **settings: str) -> None:
    """Starts a broker and stops it; may create a topic, and writes to its first partition."""

    async def run() -> None:
        async with in_process(directory, producer_id_block_size=10, **settings) as running:
            if topic is not None:
                await running.broker.services.topics.create(NewTopic(name=topic, partitions=2))
            for _ in range(25):
                await running.broker.producer_ids.wait_for_producer_id()
            partition = running.broker.services.partitions.find(topic or "orders", 0)
            batch = make_batch()
            partition.append(batch, read_header(batch), 1000)

    asyncio.run(run())


def problems(echoless: Command, data_dir: Path, *options: str) -> list[str]:
    """The problems found; the exit code agrees."""
    ran = echoless("verify", data_dir, "--json", *options)
    found: list[str] = ran.json["problems"]
    assert ran.code == bool(found)
    return found


def test_a_stopped_brokers_directory_is_right(data_dir: Path, echoless: Command) -> None:
    """The check changes nothing in it, nor next to the coordinator's file."""
    before = {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}
    assert problems(echoless, data_dir) == []
    assert {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", SMALL_FILES)
@pytest.mark.parametrize("damage", ["nonsense", "cut", "empty"])
def test_a_damaged_small_file_is_a_problem(
    data_dir: Path, echoless: Command, name: str, damage: str
) -> None:
    """Each is named, and says what is wrong with it."""
    file = data_dir / name
    data = file.read_bytes()
    file.write_bytes({"nonsense": b"nonsense", "cut": data[: len(data) // 2], "empty": b""}[damage])
    found = problems(echoless, data_dir)
    assert any(str(file) in problem for problem in found), found


@pytest.mark.parametrize("name", SMALL_FILES[:3])
def test_a_flipped_bit_in_a_small_file_is_a_problem(
    data_dir: Path, echoless: Command, name: str
) -> None:
    """Its checksum shows it."""
    file = data_dir / name
    data = bytearray(file.read_bytes())
    data[random.Random(1).randrange(10, len(data) - 20)] ^= 1
    file.write_bytes(data)
    assert any(str(file) in problem for problem in problems(echoless, data_dir))


def test_directories_that_disagree_with_the_tree_are_problems(
    data_dir: Path, echoless: Command
) -> None:
    """One that is missing, one of no topic, one of another topic's id."""
    shutil.copytree(data_dir / "orders-0", data_dir / "bills-7")
    (data_dir / "orders-1").rename(data_dir / "orders-2")
    metadata = data_dir / "orders-0" / paths.PARTITION_METADATA
    metadata.write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n")
    found = problems(echoless, data_dir)
    assert any("names orders-1, of which there is no directory" in one for one in found), found
    for stray in ("bills-7", "orders-2"):
        assert any(f"{stray}: no topic of" in one for one in found), found
    assert any("orders-0: is of topic id 00010203" in one for one in found), found
    (data_dir / paths.CLEAN_SHUTDOWN).unlink()
    assert problems(echoless, data_dir) == []  # a kill in the middle of a creation or deletion


def test_exchanged_directories_are_a_problem_even_after_a_kill(
    tmp_path: Path, echoless: Command
) -> None:
    """No creation or deletion that was cut short gives a log the id of another topic that exists."""
    data_dir = tmp_path / "data"
    run_broker(tmp_path, "orders")
    run_broker(tmp_path, "bills")
    (data_dir / "orders-1").rename(data_dir / "orders")
    (data_dir / "bills-1").rename(data_dir / "orders-1")
    (data_dir / "orders").rename(data_dir / "bills-1")
    (data_dir / paths.CLEAN_SHUTDOWN).unlink()
    found = problems(echoless, data_dir)
    assert any("orders-1: is of topic id" in one and "a log of bills" in one for one in found), (
        found
    )
    assert any("bills-1: is of topic id" in one and "a log of orders" in one for one in found), (
        found
    )


def test_a_named_embedded_coordinator_must_be_there(data_dir: Path, echoless: Command) -> None:
    """Without the option it may be a cluster's member, which has no such file."""
    (data_dir / COORDINATION_FILE).unlink()
    assert problems(echoless, data_dir) == []
    found = problems(echoless, data_dir, "--coordinator", "embedded")
    assert found == [f"{data_dir / COORDINATION_FILE}: is missing"]


@pytest.mark.cluster
def test_directories_are_compared_with_zookeeper(
    tmp_path: Path, echoless: Command, zookeeper: ZooKeeper
) -> None:
    """The same findings as with the embedded coordinator, and nothing is written to the ensemble."""
    coordinator = f"zookeeper://{zookeeper.fresh_hosts()}"
    run_broker(tmp_path, "orders", coordinator=coordinator)
    data_dir = tmp_path / "data"
    before = asyncio.run(nodes(coordinator))
    assert problems(echoless, data_dir, "--coordinator", coordinator) == []
    shutil.copytree(data_dir / "orders-0", data_dir / "bills-7")
    shutil.rmtree(data_dir / "orders-1")
    metadata = data_dir / "orders-0" / paths.PARTITION_METADATA
    metadata.write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n")
    found = problems(echoless, data_dir, "--coordinator", coordinator)
    assert any(f"{coordinator}: names orders-1" in one for one in found), found
    assert any("bills-7: no topic of" in one for one in found), found
    assert any("orders-0: is of topic id 00010203" in one for one in found), found
    assert asyncio.run(nodes(coordinator)) == before
    missing = f"zookeeper://{zookeeper.fresh_hosts()}"
    found = problems(echoless, data_dir, "--coordinator", missing)
    assert found[0] == f"{missing}: holds no cluster"
    root, _, chroot = missing.rpartition("/")
    assert chroot not in asyncio.run(names(root))


async def names(coordinator: str) -> list[str]:
    """The names at the root; not what is below, which other tests change at the same time."""
    tree = await ZooKeeperNodeTree.open(Config(coordinator=coordinator), is_read_only=True)
    try:
        return await tree.children("/")
    finally:
        await tree.close()


async def nodes(coordinator: str) -> dict[str, bytes]:
    """Everything below the chroot, by path."""
    tree = await ZooKeeperNodeTree.open(Config(coordinator=coordinator), is_read_only=True)
    try:
        found: dict[str, bytes] = {}
        left = ["/"]
        while left:
            path = left.pop()
            found[path] = (await tree.read(path)).data
            left += [f"{path.rstrip('/')}/{child}" for child in await tree.children(path)]
        return found
    finally:
        await tree.close()


def test_an_old_copy_of_the_coordinators_file_is_a_problem(
    data_dir: Path, echoless: Command
) -> None:
    """Ids claimed since, and leader epochs, show it."""
    shutil.copy(data_dir / COORDINATION_FILE, data_dir.parent / "old")
    for _ in range(2):
        run_broker(data_dir.parent)
    assert problems(echoless, data_dir) == []
    shutil.copy(data_dir.parent / "old", data_dir / COORDINATION_FILE)
    found = problems(echoless, data_dir)
    assert any("is an old copy: its last producer id is" in one for one in found), found
    assert any("is an old copy: orders-0 has leader epoch" in one for one in found), found


@pytest.mark.parametrize("epoch", [-1, 0])
@pytest.mark.parametrize("unknown", UnknownProducerId)
def test_what_brokers_accept_is_no_problem(
    tmp_path: Path, echoless: Command, unknown: UnknownProducerId, epoch: int
) -> None:
    """Evicted producers that continue, and repeats without an epoch.

    Any history the decision accepted.
    """
    settings = (
        *("--set", "producers_per_partition_max=2"),
        *("--set", f"unknown_producer_id={unknown.value}"),
    )
    for seed in range(12):
        rng = random.Random(seed)
        config = LogConfig(
            segment_bytes=700,
            producers_max=2,
            unknown_producer_id=unknown,
            window=rng.choice([1, 5]),
        )
        directory = tmp_path / str(seed)
        next_sequences = dict.fromkeys(range(4), 0)
        taken = 0
        for _ in range(2):
            with open_directory(directory, config) as log:
                for _ in range(40):
                    producer_id, count = rng.randrange(4), rng.randrange(1, 3)
                    sequence = rng.choice([next_sequences[producer_id], rng.randrange(8)])
                    batch = make_batch(
                        producer_id=producer_id, epoch=epoch, sequence=sequence, count=count
                    )
                    answer = log.append(batch, read_header(batch), 0, 1000)
                    if isinstance(answer, Appended):
                        next_sequences[producer_id] = sequence + count
                    taken += not isinstance(answer, Duplicate)
        assert taken
        ran = echoless("verify", directory, "--json", *settings)
        assert (ran.code, ran.json["problems"]) == (0, []), seed


@pytest.mark.parametrize("of_all", [True, False])
def test_a_log_is_judged_by_settings_that_were_changed_while_its_broker_ran(
    tmp_path: Path, echoless: Command, *, of_all: bool
) -> None:
    """The broker accepted what it would have refused by the settings of its start."""

    async def run() -> None:
        async with in_process(tmp_path) as running:
            broker = running.broker
            await broker.services.topics.create(NewTopic(name="orders"))
            await broker.settings.alter(
                of_all=of_all,
                edit=lambda _: {"unknown.producer.id": "accept"},
                validate_only=False,
            )
            partition = broker.services.partitions.find("orders", 0)
            for producer_id, sequence in ((1, 0), (2, 5)):
                batch = make_batch(producer_id=producer_id, sequence=sequence)
                assert isinstance(partition.append(batch, read_header(batch), 1000), Appended)

    asyncio.run(run())
    assert problems(echoless, tmp_path / "data") == []
