"""Keeps the groups of the target where those of the source are, for consumers that fail over.

1. A batch is written. All records below its end are in the target.
2. The ends of the target's partitions that the batch has moved are asked for; with the first batch, of all that have no pair.
3. The checkpoint is asked whether the next batch was begun meanwhile, by another driver: then the ends may be too high,
   and are not used. Otherwise each is a pair (`offset_pairs.py`): nothing from the batch's end on was in the target.
4. The pairs are committed as metadata in a group of the target, `echoless-mirror.<name>`: a mirror that is started again
   has them. After a crash before this, the next batch makes others.
5. At intervals the groups of the source are read, their offsets translated, and committed in the target where that moves a group
   forward. A coordinator refuses it while the group has members there: they have failed over, and go their own way.

A commit in the target has the source's offset in its metadata, so it is known as the mirror's own. If the group was moved back in the
source since, and nobody has committed in the target, it is moved back there, too.

A round asks the source for all groups that match, in few requests. The target is asked for those whose translated offsets are not
what they were when they were last settled there.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

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


class _Translated(NamedTuple):
    """A position in the target, and the one in the source that it stands for."""

    offset: int
    source: int


_Positions = Mapping[TopicPartition, _Translated]
"""By partition of the target."""


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
    _settled: dict[str, tuple[_Positions, float]] = field(default_factory=dict)
    """Positions of each group when the target had nothing left to move, and since when."""
    _noted: Offsets = field(default_factory=dict)
    """Ends of the batch before."""

    @property
    def own_group(self) -> str:
        """The group of the target whose commits hold the pairs."""
        return f"{_OWN}{self.name}"

    def note_batch(self, reached: Offsets, is_last: Callable[[], bool]) -> None:
        """Makes pairs of a batch that was written; `is_last` says whether no later one was begun.

        `reached`: the batch's ends in the source. A failure is logged: the next batch makes other pairs.
        """
        try:
            with self._lock:
                self._load()
                wanted = self._without_pair(reached)
                ends = self._target_offsets(wanted, LATEST) if wanted else {}
                if not ends or not is_last():
                    return
                for one, end in ends.items():
                    pair = OffsetPair(wanted[one], end)
                    self._pairs[one] = self._pairs.get(one, OffsetPairs()).with_pair(pair)
                self._store(ends)
                if len(ends) == len(wanted):
                    self._noted = reached
        except _FAILURES as error:
            _LOG.warning("%s: no offsets for groups after this batch: %s", self.name, error)

    def _without_pair(self, reached: Offsets) -> dict[TopicPartition, int]:
        """Returns the ends that are above the newest pairs, and those of partitions without pairs."""
        return {
            one: offset
            for topic, parts in reached.items()
            if parts != self._noted.get(topic)
            for index, offset in parts.items()
            if not (pairs := self._pairs.get(one := TopicPartition(topic, index)))
            or not pairs.pairs
            or offset > pairs.pairs[0].source
        }

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
            groups = [one for one in source.list_groups() if self._is_synchronised(one)]
            positions = self._translated(source.committed_of(groups))
            due = [one for one, found in positions.items() if self._is_due(one, found)]
            for group, there in target.committed_of(due).items():
                rows = self._rows(group, positions[group], there)
                if rows and not self._commit(target, group, rows):
                    continue
                if rows:
                    moved[group] = {one: row.offset for one, row in rows.items()}
                self._settled[group] = positions[group], self.clock_s()
        return moved

    def _is_synchronised(self, group: str) -> bool:
        return not group.startswith(_OWN) and re.fullmatch(self.pattern, group) is not None

    def _translated(
        self, committed: Mapping[str, Mapping[TopicPartition, GroupCommit]]
    ) -> dict[str, dict[TopicPartition, _Translated]]:
        """Returns the positions of groups in what is mirrored; below all pairs the target's first offset."""
        found: dict[str, dict[TopicPartition, _Translated]] = {}
        early: dict[TopicPartition, list[tuple[str, int]]] = {}
        for group, commits in committed.items():
            there = found[group] = {}
            for one, position in commits.items():
                if one not in self._pairs:
                    continue
                offset = self._pairs[one].translate(position.offset)
                if offset is None:
                    early.setdefault(one, []).append((group, position.offset))
                else:
                    there[self._in_target(one)] = _Translated(offset, position.offset)
        starts = self._target_offsets(list(early), EARLIEST) if early else {}
        for one, offset in starts.items():
            for group, source in early[one]:
                found[group][self._in_target(one)] = _Translated(offset, source)
        return found

    def _is_due(self, group: str, wanted: _Positions) -> bool:
        settled, since = self._settled.get(group, ({}, self.clock_s()))
        return wanted != settled or (bool(wanted) and since < self.clock_s() - _REFRESH_S)

    def _rows(
        self, group: str, wanted: _Positions, there: Mapping[TopicPartition, GroupCommit]
    ) -> dict[TopicPartition, GroupCommit]:
        """Returns the commits that move a group, or keep it from being forgotten."""
        _, since = self._settled.get(group, ({}, self.clock_s()))
        is_old = since < self.clock_s() - _REFRESH_S
        rows = {}
        for one, (offset, source) in wanted.items():
            current = there.get(one, GroupCommit(-1))
            before = self._source_of(current)
            is_ahead = offset > current.offset
            is_reset = before is not None and source < before and offset != current.offset
            is_forgotten_soon = is_old and before is not None and offset == current.offset
            if is_ahead or is_reset or is_forgotten_soon:
                rows[one] = GroupCommit(offset, f"{self.own_group}:{source}")
        return rows

    def _source_of(self, commit: GroupCommit) -> int | None:
        """Returns the offset in the source that a commit of this mirror stands for; None: it is another's."""
        name, _, source = commit.metadata.rpartition(":")
        return int(source) if name == self.own_group and source.isdecimal() else None

    def _commit(
        self, target: ClusterGroups, group: str, rows: Mapping[TopicPartition, GroupCommit]
    ) -> bool:
        """Whether the target has taken it."""
        try:
            target.commit(group, rows)
        except GroupRefusedError as error:
            _LOG.info("%s: %s: it has members in the target", self.name, error)
            return False
        return True

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
