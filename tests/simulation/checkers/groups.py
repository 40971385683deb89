"""The promises to members of groups: G1 to G5, from what clients saw and from the committed log; and G8.

A commit is identified by its offset, which no other commit has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from echoless.coordinators.groups.consumer.state import ConsumerState
from echoless.coordinators.groups.durable import DurableGroups
from echoless.protocol.errors import ErrorCode
from echoless.protocol.records import iterate_records
from echoless.protocol.state_records.classic_group_value import read_group_value
from echoless.protocol.state_records.consumer_group_values import TopicIdPartition
from echoless.protocol.state_records.group_keys import GroupKey, OffsetKey, read_key
from echoless.protocol.state_records.offset_value import read_offset_value
from tests.simulation.checkers.logs import Batch
from tests.simulation.groups.seen import REFUSALS, Commit, Read, Seen

NO_OFFSET: Final = -1


def faults_of(seen: Seen) -> Iterator[str]:
    """Every promise broken to a member."""
    yield from generations_rise(seen)
    yield from one_assignment_a_generation(seen)
    yield from reads_are_right(seen.commits, seen.reads)
    yield from classic_commits_are_of_the_generation(seen)
    yield from consumer_commits_are_of_the_owner(seen)


def generations_rise(seen: Seen) -> Iterator[str]:
    """G2: who asks after a generation was given to someone is given none before it."""
    for one in seen.joined:
        earlier = [
            other.generation_id
            for other in seen.joined
            if other.group_id == one.group_id and other.at < one.asked_at
        ]
        if earlier and one.generation_id < max(earlier):
            yield (
                f"G2: {one.member_id} is given generation {one.generation_id} at {one.at:.3f}, "
                f"and {max(earlier)} was given before it asked"
            )


def one_assignment_a_generation(seen: Seen) -> Iterator[str]:
    """G1: one leader's assignment, and no place for two members."""
    authors: dict[tuple[str, int], set[str]] = defaultdict(set)
    owners: dict[tuple[str, int, tuple[str, int]], set[str]] = defaultdict(set)
    for one in seen.synced:
        if one.author:
            authors[one.group_id, one.generation_id].add(one.author)
        for place in one.places:
            owners[one.group_id, one.generation_id, place].add(one.member_id)
    for (group_id, number), names in authors.items():
        if len(names) > 1:
            yield f"G1: generation {number} of {group_id} has the assignments of {sorted(names)}"
    for (group_id, number, place), members in owners.items():
        if len(members) > 1 and len({one.rpartition("-")[0] for one in members}) > 1:
            yield f"G1: in generation {number} of {group_id} {sorted(members)} have {place}"


def reads_are_right(commits: Sequence[Commit], reads: Iterable[Read]) -> Iterator[str]:
    """G3 and G4: a commit that was answered is read back, until another one may have replaced it."""
    by_place: dict[tuple[str, object], list[Commit]] = defaultdict(list)
    for commit in commits:
        by_place[commit.group_id, commit.place].append(commit)
    for read in reads:
        yield from _faults_of_read(read, by_place[read.group_id, read.place])


def _faults_of_read(read: Read, commits: Sequence[Commit]) -> Iterator[str]:
    what = f"{read.offset} is read back for {read.place} of {read.group_id} at {read.ended_at:.3f}"
    settled = [
        one
        for one in commits
        if one.code is ErrorCode.NONE
        and one.answered_at is not None
        and one.answered_at < read.began_at
    ]
    if read.offset == NO_OFFSET:
        if settled:
            yield f"G4: {what}, and a commit of {settled[-1].offset} was answered"
        return
    found = next((one for one in commits if one.offset == read.offset), None)
    if found is None or found.sent_at > read.ended_at:
        yield f"G3: {what}, which no one committed"
        return
    if found.code in REFUSALS:
        yield f"G5: {what}, which was refused to {found.member_id!r} with {found.code!r}"
    if found.answered_at is None or found.code is not ErrorCode.NONE:
        return  # it may have been stored at any time since
    later = [one.offset for one in settled if one.sent_at > found.answered_at]
    if later:
        yield f"G4: {what}, and commits of {later} were answered since"


def classic_commits_are_of_the_generation(seen: Seen) -> Iterator[str]:
    """G5: once a later generation has been given to anyone, no commit of an earlier one is accepted."""
    for commit in _accepted(seen):
        later = [
            one.generation_id
            for one in seen.joined
            if one.group_id == commit.group_id
            and one.generation_id > commit.epoch
            and one.at < commit.sent_at
        ]
        if later:
            yield (
                f"G5: {commit.member_id} commits {commit.offset} in generation {commit.epoch} at "
                f"{commit.sent_at:.3f}, and generation {max(later)} has begun"
            )


def consumer_commits_are_of_the_owner(seen: Seen) -> Iterator[str]:
    """G5: no commit for a partition is accepted that another member has, given to it in a later epoch."""
    for commit in _accepted(seen):
        for one in seen.holdings:
            if (
                (one.group_id, one.place) == (commit.group_id, commit.place)
                and one.member_id != commit.member_id
                and one.epoch > commit.epoch
                and one.began_at < commit.sent_at
                and (one.ended_at is None or one.ended_at > (commit.answered_at or 0.0))
            ):
                yield (
                    f"G5: {commit.member_id} commits {commit.offset} for {commit.place} in epoch {commit.epoch} "
                    f"at {commit.sent_at:.3f}, and {one.member_id} has that since epoch {one.epoch}"
                )


def _accepted(seen: Seen) -> Iterator[Commit]:
    """Commits of members."""
    for commit in seen.commits:
        if commit.code is ErrorCode.NONE and commit.member_id:
            yield commit


def replay(batches: Iterable[Batch]) -> DurableGroups:
    """The groups that the records of a log make."""
    durable = DurableGroups()
    for batch in batches:
        for record in iterate_records(memoryview(batch.data)):
            assert record.key is not None
            durable.apply(record.key, record.value)
    return durable


class LogReader:
    """Replays the whole log of one partition of `__consumer_offsets`, and judges each state that it goes through."""

    def __init__(self, commits: Sequence[Commit]) -> None:
        self.durable = DurableGroups()
        self._commits = {one.offset: one for one in commits}
        self._generations: dict[str, int] = {}
        self._epochs: dict[str, int] = {}
        self._targets: dict[tuple[str, int], dict[str, frozenset[TopicIdPartition]]] = {}

    def faults(self, batches: Iterable[Batch]) -> Iterator[str]:
        """G1, G2, G3 and G5 of what is stored."""
        for batch in batches:
            for record in iterate_records(memoryview(batch.data)):
                assert record.key is not None
                yield from self._faults_of_record(record.key, record.value)
                self.durable.apply(record.key, record.value)
            for group_id, group in self.durable.groups.items():
                if group.consumer is not None:
                    yield from self._faults_of_group(group_id, group.consumer)

    def _faults_of_record(self, key: bytes, value: bytes | None) -> Iterator[str]:
        read = read_key(key)
        if isinstance(read, OffsetKey) and value is not None:
            offset = read_offset_value(value).offset
            commit = self._commits.get(offset)
            place = read.topic, read.partition
            if commit is None or (commit.group_id, commit.place) != (read.group_id, place):
                yield f"G3: {offset} is stored for {place} of {read.group_id}, which no one committed"
            elif commit.code in REFUSALS:
                yield f"G5: the commit of {offset} is stored, and was refused with {commit.code!r}"
        if isinstance(read, GroupKey):
            number = 0 if value is None else read_group_value(value).generation_id
            before = self._generations.get(read.group_id, 0)
            if value is not None and number < before:
                yield f"G2: generation {number} of {read.group_id} is stored after {before}"
            self._generations[read.group_id] = number

    def _faults_of_group(self, group_id: str, state: ConsumerState) -> Iterator[str]:
        if state.number < self._epochs.get(group_id, 0):
            yield f"G2: epoch {state.number} of {group_id} is stored after {self._epochs[group_id]}"
        self._epochs[group_id] = state.number
        owners: dict[TopicIdPartition, str] = {}
        for member_id, current in state.currents.items():
            for partition in (*current.assigned, *current.pending):
                other = owners.setdefault(partition, member_id)
                if other != member_id:
                    yield f"G1: {other} and {member_id} of {group_id} have {partition}"
        yield from self._faults_of_target(group_id, state)

    def _faults_of_target(self, group_id: str, state: ConsumerState) -> Iterator[str]:
        """One target an epoch; members that go take their part of it with them."""
        known = self._targets.setdefault((group_id, state.target_epoch), dict(state.targets))
        for member_id, partitions in state.targets.items():
            before = known.get(member_id)
            if before is not None and before != partitions:
                yield f"G1: two targets in epoch {state.target_epoch} of {group_id} for {member_id}"
