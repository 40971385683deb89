"""Whether a data directory agrees with the coordinator: its cluster, its topics, their ids and epochs.

Without a name, the embedded coordinator's file is compared if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from echoless.broker.config.dynamic import DynamicConfig
from echoless.broker.config.loading import Config
from echoless.broker.environment import COORDINATION_FILE
from echoless.broker.metadata.config_nodes import DEFAULT_NAME
from echoless.broker.metadata.topic import Topic
from echoless.broker.tree.node_tree import CoordinationError
from echoless.cli.verification.findings import Findings
from echoless.cli.verification.tree_content import TreeContent, read_embedded, read_zookeeper
from echoless.protocol.errors import KafkaError
from echoless.storage import paths
from echoless.storage.file_system import StorageError
from echoless.storage.leader_epochs import LeaderEpochs
from echoless.storage.meta_properties import read_broker_id, read_cluster_id
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.partition_metadata import read_topic_id
from echoless.storage.producer_id_checkpoint import read_seen_counts

Key = tuple[str, int]
_FILES = OsFileSystem()


class ComparedCoordinator(NamedTuple):
    """The coordinator to compare with."""

    config: Config
    """Names it, and says how to reach it."""
    is_named: bool
    """Whether the caller asked for it; otherwise a missing file is no finding."""


def check_coordination(
    data_dir: str,
    directories: Mapping[Key, str],
    coordinator: ComparedCoordinator,
    findings: Findings,
) -> None:
    """Reads the coordinator and compares it with the partitions' `directories`.

    Afterwards `coordinator.config` has the settings too that were changed while the broker ran.

    A broker that was killed may have been creating or deleting a topic, which the next start finishes.
    """
    hosts = coordinator.config.zookeeper_hosts if coordinator.is_named else None
    place = paths.join(data_dir, COORDINATION_FILE) if hosts is None else f"zookeeper://{hosts}"
    if hosts is None and not _FILES.exists(place):
        if coordinator.is_named:
            findings.problem(place, "is missing")
        return
    try:
        tree = read_embedded(place) if hosts is None else read_zookeeper(coordinator.config)
    except (CoordinationError, KafkaError) as error:
        findings.problem(place, error)
        return
    try:
        broker_id = read_broker_id(_FILES, data_dir)
        cluster_id = read_cluster_id(_FILES, data_dir)
        last_id = read_seen_counts(_FILES, data_dir).last_id
    except StorageError:
        return  # reported with the file itself
    if tree.cluster_id != cluster_id:
        findings.problem(
            place, f"belongs to cluster {tree.cluster_id}, the data directory to {cluster_id}"
        )
        return
    if tree.last_id < last_id:
        findings.problem(
            place,
            f"is an old copy: its last producer id is {tree.last_id}, and {last_id} was claimed",
        )
    DynamicConfig(coordinator.config).apply(
        tree.settings.get(DEFAULT_NAME, {}), tree.settings.get(str(broker_id), {})
    )
    was_clean = _FILES.exists(paths.join(data_dir, paths.CLEAN_SHUTDOWN))
    report = findings.problem if was_clean else findings.note
    comparison = _Comparison(
        place, tree, broker_id, is_shared=hosts is not None, report=report, findings=findings
    )
    comparison.run(directories)


@dataclass(slots=True, frozen=True)
class _Comparison:
    """The directories of one broker against one tree."""

    place: str
    tree: TreeContent
    broker_id: int
    is_shared: bool
    """Whether other brokers may have changed the tree since this one stopped."""
    report: Callable[[str, object], None]
    """Takes what a kill in the middle of a creation or deletion explains."""
    findings: Findings

    def run(self, directories: Mapping[Key, str]) -> None:
        """Reports each directory that is missing, unknown or of another topic."""
        wanted = set(self._assigned())
        for name, index in sorted(wanted - directories.keys()):
            self._report_missing(self.tree.topics[name], index)
        for key, directory in sorted(directories.items()):
            if key in wanted:
                self._compare(self.tree.topics[key[0]], key[1], directory)
            else:
                self.report(
                    directory,
                    f"no topic of {self.place} has this partition on broker {self.broker_id}: "
                    f"the next start sets it aside",
                )

    def _assigned(self) -> Iterable[Key]:
        return (
            (topic.name, index)
            for topic in self.tree.topics.values()
            for index, replicas in topic.assignment.items()
            if self.broker_id in replicas
        )

    def _report_missing(self, topic: Topic, index: int) -> None:
        """Reports it unless it was never led, or may have been assigned since this broker stopped."""
        state = topic.states.get(index)
        if state is None:
            return
        is_expected = self.broker_id in state.isr or not self.is_shared
        report = self.report if is_expected else self.findings.note
        report(self.place, f"names {topic.name}-{index}, of which there is no directory")

    def _compare(self, topic: Topic, index: int, directory: str) -> None:
        try:
            topic_id = read_topic_id(_FILES, directory)
            epochs_path = paths.join(directory, paths.LEADER_EPOCH_CHECKPOINT)
            latest_epoch = LeaderEpochs(_FILES, epochs_path).latest_epoch
        except StorageError:
            return  # reported with the file itself
        if topic_id != topic.topic_id:
            self._report_other_id(topic, topic_id, directory)
            return
        state = topic.states.get(index)
        in_tree = -1 if state is None else state.leader_epoch
        if in_tree < latest_epoch:
            self.findings.problem(
                self.place,
                f"is an old copy: {topic.name}-{index} has leader epoch {in_tree}, "
                f"its log {latest_epoch}",
            )

    def _report_other_id(self, topic: Topic, found: object, directory: str) -> None:
        """No kill explains the id of another topic that exists: directories were exchanged."""
        owner = next((one for one in self.tree.topics.values() if one.topic_id == found), None)
        text = f"is of topic id {found}, in {self.place} the topic has {topic.topic_id}"
        if owner is None:
            self.report(directory, text)
        else:
            self.findings.problem(directory, f"{text}: it is a log of {owner.name}")
