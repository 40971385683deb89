"""The faults of a group, found from its members' logs and from the generations that were stored. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from echoless.protocol.state_records.classic_group_value import GroupValue
from echoless.protocol.state_records.fields import FieldReader
from tests.group_members.epochs import Epochs
from tests.group_members.events import (
    Assigned,
    Committed,
    Committing,
    Event,
    Read,
    Revoked,
)

_EXAMPLES_MAX: Final = 10


class Life(NamedTuple):
    """One process of one member, from its start to its end."""

    name: str
    events: Sequence[Event]
    says_all: bool = True
    """Its client reports assignments before it reads and revocations before it stops reading.

    False for kcat, which reports nothing, and for clients that rebalance in the background.
    """
    logs_commits: bool = True
    """False for kcat, which commits by itself."""


@dataclass(slots=True)
class Findings:
    """Examples of what was wrong, and counts of what was looked at."""

    problems: list[str] = field(default_factory=list)
    records_read: int = 0
    commits_answered: int = 0
    assignments: int = 0
    generations: int = 0

    def add(self, problem: str) -> None:
        if len(self.problems) < _EXAMPLES_MAX:
            self.problems.append(problem)


@dataclass(slots=True)
class Evidence:
    """A group's part in a run."""

    produced: Mapping[tuple[int, int], int]
    """The number of the record at each partition and offset, as acknowledged to the producer."""
    lives: Sequence[Life]
    stored: Sequence[GroupValue]
    """The group's records in `__consumer_offsets`, in their order."""
    committed: Sequence[Mapping[int, int]] = ()
    """The committed offsets by partition that each later coordinator answered at the end."""
    epochs: Epochs | None = None
    """The group's records if it is one of the consumer protocol."""


def judge(evidence: Evidence) -> Findings:
    """Look for records left out, out of order or changed, commits that were lost, and second owners."""
    findings = Findings()
    commits = _Commits(evidence.lives)
    findings.commits_answered = len(commits.answered)
    seen: set[tuple[int, int]] = set()
    for life in evidence.lives:
        seen |= _judge_life(life, evidence, commits, findings)
    unread = evidence.produced.keys() - seen
    for missing in sorted(unread - _dropped_at_the_end(unread, evidence.lives)):
        findings.add(f"partition {missing[0]} offset {missing[1]} reached no member")
    _judge_generations(evidence, findings)
    for positions in evidence.committed:
        for partition, offset in commits.last_answered().items():
            if positions.get(partition, -1) < offset:
                findings.add(
                    f"a commit of {offset} in partition {partition} was answered, and later "
                    f"{positions.get(partition, -1)} is read"
                )
    return findings


def _dropped_at_the_end(
    unread: set[tuple[int, int]], lives: Iterable[Life]
) -> set[tuple[int, int]]:
    """Return what kcat may have committed without printing it: one record at the end of each of its lives.

    Told to end, it drops the record that librdkafka has just given to it, and so counts as consumed.
    """
    dropped: set[tuple[int, int]] = set()
    for life in lives:
        if not life.logs_commits:
            reads = (event for event in life.events if isinstance(event, Read))
            next_offsets = {event.partition: event.offset + 1 for event in reads}
            dropped |= set(sorted(unread & next_offsets.items() - dropped)[:1])
    return dropped


class _Commits:
    """Every commit of the group, over all lives."""

    def __init__(self, lives: Iterable[Life]) -> None:
        self.attempted: set[tuple[int, int]] = set()
        self.answered: list[tuple[int, int, int]] = []
        """Time, partition, offset."""
        self.are_all_logged = True
        for life in lives:
            self.are_all_logged &= life.logs_commits
            for event in life.events:
                if isinstance(event, Committing):
                    self.attempted |= set(event.offsets.items())
                elif isinstance(event, Committed):
                    self.answered += [(event.time_us, *pair) for pair in event.offsets.items()]
        self.answered.sort()

    def answered_before(self, time_us: int, partition: int) -> int:
        """Return the highest offset of which the group knew before then that it is committed."""
        return max(
            (offset for at, one, offset in self.answered if one == partition and at < time_us),
            default=0,
        )

    def do_explain(self, partition: int, offset: int) -> bool:
        """Whether a member may begin there: at a commit, at the beginning, or where commits are not known."""
        return not offset or not self.are_all_logged or (partition, offset) in self.attempted

    def last_answered(self) -> dict[int, int]:
        """Return the highest offset of each partition."""
        found: dict[int, int] = {}
        for _, partition, offset in self.answered:
            found[partition] = max(offset, found.get(partition, 0))
        return found


class _Reader:
    """One life, event by event: what it owns, and where it is in each partition."""

    def __init__(self, life: Life, evidence: Evidence, commits: _Commits) -> None:
        self._life = life
        self._produced = evidence.produced
        self._commits = commits
        self._since: dict[int, int] = {}
        """The time of the assignment of each partition that it owns."""
        self._position: dict[int, int] = {}

    def assigned(self, event: Assigned) -> None:
        for partition in event.partitions:
            self._since[partition] = event.time_us
            self._position.pop(partition, None)

    def revoked(self, event: Revoked) -> None:
        for partition in event.partitions:
            self._since.pop(partition, None)
            self._position.pop(partition, None)

    def read(self, event: Read) -> Iterator[str]:
        """Yield what is wrong with it."""
        place = (event.partition, event.offset)
        number = self._produced.get(place, event.number)
        if event.number != number:
            yield f"read number {event.number} at {place}, where {number} was stored"
        if event.partition in self._since:
            yield from self._judge_position(event)
            self._position[event.partition] = event.offset + 1
        elif self._life.says_all:
            yield f"read {place} without owning the partition"

    def _judge_position(self, event: Read) -> Iterator[str]:
        partition, offset = event.partition, event.offset
        expected = self._position.get(partition)
        if expected is not None:
            if offset != expected:
                yield f"read offset {offset} of partition {partition} after {expected - 1}"
            return
        lowest = self._commits.answered_before(self._since[partition], partition)
        if offset < lowest:
            yield (
                f"began partition {partition} at {offset}, though a commit of {lowest} had been "
                "answered before it was assigned"
            )
        if self._commits.do_explain(partition, offset):
            return
        yield f"began partition {partition} at {offset}, which no member committed"


def _judge_life(
    life: Life, evidence: Evidence, commits: _Commits, findings: Findings
) -> set[tuple[int, int]]:
    """Return what it has read."""
    reader = _Reader(life, evidence, commits)
    seen = set()
    for event in life.events:
        if isinstance(event, Assigned):
            findings.assignments += 1
            reader.assigned(event)
        elif isinstance(event, Revoked):
            reader.revoked(event)
        elif isinstance(event, Read):
            findings.records_read += 1
            seen.add((event.partition, event.offset))
            for problem in reader.read(event):
                findings.add(f"{life.name} {problem}")
    return seen


def _judge_generations(evidence: Evidence, findings: Findings) -> None:
    """Look at what the coordinators stored, and compare what the members say of themselves with it."""
    if evidence.epochs is not None and evidence.epochs.number:
        findings.generations = evidence.epochs.number
        for problem in evidence.epochs.problems():
            findings.add(problem)
        return
    owners: dict[int, list[frozenset[int]]] = {}
    newest = 0
    for value in evidence.stored:
        if value.generation_id < newest:
            findings.add(f"generation {value.generation_id} is stored after {newest}")
        newest = max(newest, value.generation_id)
        if value.is_rebalancing or not value.members:
            continue
        parts = [_partitions(member.assignment) for member in value.members]
        if sum(map(len, parts)) != len(frozenset().union(*parts)):
            findings.add(f"generation {value.generation_id} gives a partition to two members")
        known = owners.setdefault(value.generation_id, parts)
        if sorted(map(sorted, known)) != sorted(map(sorted, parts)):
            findings.add(f"generation {value.generation_id} has two assignments")
    findings.generations = len(owners)
    _judge_claims(evidence.lives, owners, findings)


def _judge_claims(
    lives: Iterable[Life], owners: Mapping[int, Sequence[frozenset[int]]], findings: Findings
) -> None:
    claims: dict[tuple[int, int], set[str]] = defaultdict(set)
    for life in lives:
        for event in life.events:
            if not isinstance(event, Assigned) or event.generation < 0:
                continue
            wanted = frozenset(event.partitions)
            if not any(wanted <= part for part in owners.get(event.generation, [frozenset()])):
                findings.add(
                    f"{life.name} says that generation {event.generation} gave it {sorted(wanted)}"
                )
            for partition in wanted:
                claims[event.generation, partition].add(life.name)
    for (generation, partition), names in claims.items():
        if len(names) > 1:
            findings.add(
                f"partition {partition} has several owners in generation {generation}: {sorted(names)}"
            )


def _partitions(assignment: bytes) -> frozenset[int]:
    """Read the partitions of the one topic from the consumer protocol's bytes; none if there are no bytes."""
    if not assignment:
        return frozenset()
    reader = FieldReader(assignment)
    reader.int16()
    topics = reader.array(lambda fields: (fields.string(), fields.array(FieldReader.int32)))
    return frozenset(partition for _, partitions in topics for partition in partitions)
