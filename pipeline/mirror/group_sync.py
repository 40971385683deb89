"""Keeps the groups of the target where those of the source are, for consumers that fail over.

1. A batch is written. All records below its end are in the target.
2. The ends of the target's partitions that the batch has reached are asked for.
3. The checkpoint is asked whether the next batch was begun meanwhile, by another driver: then the ends may be too high,
   and are not used. Otherwise each is a pair (`offset_pairs.py`): nothing from the batch's end on was in the target.
4. The pairs are committed as metadata in a group of the target, `echoless-mirror.<name>`: a mirror that is started again
   has them. After a crash before this, the next batch makes others.
5. At intervals the groups of the source are read, their offsets translated, and committed in the target where that moves a group
   forward. A coordinator refuses it while the group has members there: they have failed over, and go their own way.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from echoless.client.connection import ConnectionFailedError
from echoless.client.security import Security
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.batches.partition_leader import EARLIEST, LATEST, ClusterReadError
from echoless.pipeline.batches.partition_offsets import read_offsets_of
from echoless.pipeline.mirror.group_offsets import (
    ClusterGroups,
    GroupCommit,
    GroupRefusedError,
)
from echoless.pipeline.mirror.offset_pairs import OffsetPair, OffsetPairs
from echoless.pipeline.mirror.offsets import Offsets

_LOG: Final = logging.getLogger(__name__)
_OWN: Final = "echoless-mirror."
_REFRESH_S: Final = 6 * 3600.0
"""Seconds after which offsets are committed again that have not changed: groups forget them otherwise."""
_FAILURES: Final = (ConnectionFailedError, ClusterReadError, GroupRefusedError)


@dataclass(slots=True, kw_only=True)
class SyncedCluster:
    """A cluster whose groups are read or moved."""

    servers: str
    security: Security


@dataclass(slots=True, kw_only=True)
class GroupSync:
    """Translates the offsets of groups while a mirror runs. Callable from any thread."""

    source: SyncedCluster
    target: SyncedCluster
    name: str
    pattern: str
    """Regular expression that whole names of groups match."""
    prefix: str
    interval_s: float
    clock_s: Callable[[], float] = time.monotonic
    _pairs: dict[TopicPartition, OffsetPairs] = field(default_factory=dict)
    """By partition of the source."""
    _is_loaded: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _due_s: float = 0.0
    _committed: dict[tuple[str, TopicPartition], tuple[int, float]] = field(default_factory=dict)
    """Offset that was committed for a group and partition of the target, and when."""

    @property
    def own_group(self) -> str:
        """The group of the target whose commits hold the pairs."""
        return f"{_OWN}{self.name}"

    def note_batch(self, reached: Offsets, is_last: Callable[[], bool]) -> None:
        """Makes pairs of a batch that was written; `is_last` says whether no later one was begun.

        `reached`: the batch's ends in the source, of the partitions that had records. A failure is logged: the next batch
        makes other pairs.
        """
        wanted = {
            TopicPartition(topic, index): offset
            for topic, parts in reached.items()
            for index, offset in parts.items()
        }
        if not wanted:
            return
        try:
            with self._lock:
                self._load()
                ends = self._target_offsets(wanted, LATEST)
                if is_last():
                    for one, end in ends.items():
                        pair = OffsetPair(wanted[one], end)
                        self._pairs[one] = self._pairs.get(one, OffsetPairs()).with_pair(pair)
                    self._store(ends)
        except _FAILURES as error:
            _LOG.warning("%s: no offsets for groups after this batch: %s", self.name, error)

    def sync_if_due(self) -> None:
        """Moves the groups of the target if it is time; a failure is logged, and tried again at the next time."""
        if self._due_s and self.clock_s() < self._due_s:
            return
        self._due_s = self.clock_s() + self.interval_s
        try:
            self.sync()
        except _FAILURES as error:
            _LOG.warning("%s: groups are not synchronised: %s", self.name, error)

    def sync_at_end(self) -> None:
        """Moves the groups once more, now."""
        self._due_s = 0.0
        self.sync_if_due()

    def sync(self) -> dict[str, dict[TopicPartition, int]]:
        """Moves the groups of the target forward; returns what was committed.

        Raises `ConnectionFailedError`, `ClusterReadError`, `GroupRefusedError`.
        """
        moved: dict[str, dict[TopicPartition, int]] = {}
        with (
            self._lock,
            ClusterGroups(self.source.servers, self.source.security) as source,
            ClusterGroups(self.target.servers, self.target.security) as target,
        ):
            self._load()
            for group in source.list_groups():
                if group.startswith(_OWN) or not re.fullmatch(self.pattern, group):
                    continue
                wanted = self._translated(source.committed(group))
                if rows := self._ahead(group, wanted, target.committed(group)):
                    moved |= self._commit(target, group, rows)
        return moved

    def _translated(
        self, committed: Mapping[TopicPartition, GroupCommit]
    ) -> dict[TopicPartition, int]:
        """Returns the offsets in the target, by its partitions, of those that are mirrored."""
        found: dict[TopicPartition, int] = {}
        early: list[TopicPartition] = []
        for one, position in committed.items():
            if one in self._pairs:
                offset = self._pairs[one].translate(position.offset)
                if offset is None:
                    early.append(one)
                else:
                    found[self._in_target(one)] = offset
        starts = self._target_offsets(early, EARLIEST) if early else {}
        return found | {self._in_target(one): offset for one, offset in starts.items()}

    def _ahead(
        self,
        group: str,
        wanted: Mapping[TopicPartition, int],
        there: Mapping[TopicPartition, GroupCommit],
    ) -> dict[TopicPartition, GroupCommit]:
        """Returns the commits that move a group forward, or keep it from being forgotten."""
        old = self.clock_s() - _REFRESH_S
        rows = {}
        for one, offset in wanted.items():
            known, since = self._committed.get((group, one), (-1, 0.0))
            current = there[one].offset if one in there else -1
            if offset > current or (offset == current == known and since < old):
                rows[one] = GroupCommit(offset)
        return rows

    def _commit(
        self, target: ClusterGroups, group: str, rows: Mapping[TopicPartition, GroupCommit]
    ) -> dict[str, dict[TopicPartition, int]]:
        try:
            target.commit(group, rows)
        except GroupRefusedError as error:
            _LOG.info("%s: %s: it has members in the target", self.name, error)
            return {}
        now = self.clock_s()
        self._committed |= {(group, one): (row.offset, now) for one, row in rows.items()}
        return {group: {one: row.offset for one, row in rows.items()}}

    def _target_offsets(
        self, partitions: Mapping[TopicPartition, int] | list[TopicPartition], which: int
    ) -> dict[TopicPartition, int]:
        """Asks for offsets of the target, by partitions of the source."""
        names = {self._in_target(one): one for one in partitions}
        found = read_offsets_of(self.target.servers, names, which, self.target.security)
        return {names[one]: offset for one, offset in found.items()}

    def _in_target(self, one: TopicPartition) -> TopicPartition:
        return TopicPartition(self.prefix + one.topic, one.partition)

    def _load(self) -> None:
        """Reads the pairs of earlier runs, once."""
        if self._is_loaded:
            return
        with ClusterGroups(self.target.servers, self.target.security) as target:
            for one, committed in target.committed(self.own_group).items():
                if one.topic.startswith(self.prefix):
                    source = TopicPartition(one.topic.removeprefix(self.prefix), one.partition)
                    self._pairs[source] = OffsetPairs.from_text(committed.metadata)
        self._is_loaded = True

    def _store(self, changed: Mapping[TopicPartition, int]) -> None:
        rows = {
            self._in_target(one): GroupCommit(end, self._pairs[one].to_text())
            for one, end in changed.items()
        }
        with ClusterGroups(self.target.servers, self.target.security) as target:
            target.commit(self.own_group, rows)
