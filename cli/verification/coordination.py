"""The embedded coordinator's file, and whether the directory agrees with what it says.

A copy of the file is opened, so that nothing beside the original changes. A tree that ZooKeeper keeps is
not asked: then there is no file, and nothing is compared.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from broker.environment import COORDINATION_FILE
from broker.metadata.cluster_id import read_or_create_cluster_id
from broker.metadata.producer_ids import PATH, last_id_of
from broker.metadata.topic import Topic
from broker.metadata.topic_registry import TopicRegistry
from broker.tree.embedded import EmbeddedNodeTree
from broker.tree.node_tree import CoordinationError
from cli.verification.findings import Findings
from protocol.errors import KafkaError
from storage import paths
from storage.file_system import OsFileSystem, StorageError
from storage.leader_epochs import LeaderEpochs
from storage.meta_properties import read_broker_id, read_cluster_id
from storage.partition_metadata import read_topic_id
from storage.producer_id_checkpoint import read_last_claimed_id

Key = tuple[str, int]
_FILES = OsFileSystem()


class TreeContent(NamedTuple):
    """What the coordinator's file says."""

    cluster_id: str
    last_id: int
    """The end of the newest block of producer ids."""
    topics: Mapping[str, Topic]


def check_coordination(data_dir: str, directories: Mapping[Key, str], findings: Findings) -> None:
    """Checks the file, if there is one, and compares it with the partitions' `directories`.

    A broker that was killed may have been creating or deleting a topic, which the next start finishes.
    """
    path = paths.join(data_dir, COORDINATION_FILE)
    if not _FILES.exists(path):
        return
    try:
        tree = asyncio.run(_read(path))
    except (CoordinationError, KafkaError) as error:
        findings.problem(path, error)
        return
    try:
        broker_id = read_broker_id(_FILES, data_dir)
        cluster_id = read_cluster_id(_FILES, data_dir)
        last_id = read_last_claimed_id(_FILES, data_dir)
    except StorageError:
        return  # reported with the file itself
    if tree.cluster_id != cluster_id:
        findings.problem(
            path, f"belongs to cluster {tree.cluster_id}, the data directory to {cluster_id}"
        )
    if tree.last_id < last_id:
        findings.problem(
            path,
            f"is an old copy: its last producer id is {tree.last_id}, and {last_id} was claimed",
        )
    _compare(path, broker_id, tree.topics, directories, findings)


async def _read(path: str) -> TreeContent:
    """Raises `CoordinationError`."""
    with tempfile.TemporaryDirectory(prefix="echoless-verify-") as scratch:
        for suffix in ("", "-wal"):
            if Path(path + suffix).exists():  # noqa: ASYNC240 - nothing else runs
                shutil.copyfile(path + suffix, f"{scratch}/copy{suffix}")
        try:
            tree = EmbeddedNodeTree.open(f"{scratch}/copy")
        except CoordinationError as error:
            raise CoordinationError(str(error).replace(f"{scratch}/copy", path)) from error
        try:
            cluster_id = await read_or_create_cluster_id(tree)
            registry = TopicRegistry(tree, rng=random.Random(0))  # noqa: S311
            await registry.load()
            (node,) = await tree.read_many([PATH])
            return TreeContent(cluster_id, last_id_of(node), dict(registry.topics))
        finally:
            await tree.close()


def _compare(
    path: str,
    broker_id: int,
    topics: Mapping[str, Topic],
    directories: Mapping[Key, str],
    findings: Findings,
) -> None:
    was_clean = _FILES.exists(paths.join(paths.parent_of(path), paths.CLEAN_SHUTDOWN))
    report = findings.problem if was_clean else findings.note
    wanted = set(_assigned(topics.values(), broker_id))
    for name, index in sorted(wanted - directories.keys()):
        if index in topics[name].states:
            report(path, f"names {name}-{index}, of which there is no directory")
    for key, directory in sorted(directories.items()):
        if key not in wanted:
            report(
                directory, f"no topic of {path} has this partition: the next start sets it aside"
            )
        else:
            _compare_partition(
                path, topics[key[0]], key[1], directory, findings=findings, report=report
            )


def _assigned(topics: Iterable[Topic], broker_id: int) -> Iterable[Key]:
    return (
        (topic.name, index)
        for topic in topics
        for index, replicas in topic.assignment.items()
        if broker_id in replicas
    )


def _compare_partition(
    path: str,
    topic: Topic,
    index: int,
    directory: str,
    *,
    findings: Findings,
    report: Callable[[str, object], None],
) -> None:
    try:
        topic_id = read_topic_id(_FILES, directory)
        epochs_path = paths.join(directory, paths.LEADER_EPOCH_CHECKPOINT)
        latest_epoch = LeaderEpochs(_FILES, epochs_path).latest_epoch
    except StorageError:
        return  # reported with the file itself
    if topic_id != topic.topic_id:
        report(directory, f"is of topic id {topic_id}, in {path} the topic has {topic.topic_id}")
        return
    state = topic.states.get(index)
    in_tree = -1 if state is None else state.leader_epoch
    if in_tree < latest_epoch:
        findings.problem(
            path,
            f"is an old copy: {topic.name}-{index} has leader epoch {in_tree}, its log {latest_epoch}",
        )
