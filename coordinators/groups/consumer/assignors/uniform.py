"""The assignor `uniform`: equal shares, and as few moves as possible.

Members keep what they have. What no one has goes, in the order of topic and partition, to the member with least;
then partitions move from members with most to those with least, until no single move evens out anything. If
all members subscribe to the same topics, their shares then differ by one at most, and no sequence of moves
would have been shorter; with different subscriptions chains of moves are not tried.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from echoless.coordinators.groups.consumer.assignors.inputs import (
    AssignedTopic,
    Steps,
    Subscriber,
    Target,
)
from echoless.protocol.state_records.consumer_group_values import TopicIdPartition

_PASSES_MAX: Final = 16
"""Members with different subscriptions are evened out so often at most."""
_HEAP_FROM: Final = 32
"""So many partitions to give to the same members are worth a heap."""


def assign_uniformly(members: Sequence[Subscriber], topics: Sequence[AssignedTopic]) -> Steps:
    """Deal out all partitions that a member subscribes to."""
    shares = _Shares(members, topics)
    yield from shares.rank()
    yield from shares.keep()
    yield from shares.deal_out()
    for _ in range(_PASSES_MAX):
        moves = shares.moves
        yield from shares.even_out()
        if shares.moves == moves:
            break
    return (yield from shares.target())


class _Counts:
    """The sizes of all shares by rank, and which of them have become smaller since when."""

    def __init__(self, count: int) -> None:
        self.of = [0] * count
        self.moment = 0
        """Counts decreases."""
        self._decreased: dict[int, int] = {}
        """The moment of each rank's last decrease, the newest last."""

    def decrease(self, rank: int) -> None:
        """Count one partition less."""
        self.of[rank] -= 1
        self.moment += 1
        self._decreased.pop(rank, None)
        self._decreased[rank] = self.moment

    def decreased_since(self, moment: int) -> Iterator[int]:
        """The ranks whose shares have become smaller since, each once."""
        for rank in reversed(self._decreased):
            if self._decreased[rank] <= moment:
                return
            yield rank


class _Ranking:
    """The members that subscribe to the same topics; who has least is looked up.

    With many partitions to give, a heap answers that, whose entries may be out of date. If members differ much there
    may be a ranking for each topic: a heap for each would take gigabytes.
    """

    def __init__(self, ranks: tuple[int, ...], counts: _Counts) -> None:
        """`ranks` are in order."""
        self._ranks = ranks
        self._all = counts
        self._counts = counts.of
        self.partitions = 0
        """Number of partitions that it has to give."""
        self._moment = 0
        self._heap: list[tuple[int, int]] = []

    def least(self) -> int:
        """The rank of the member with the smallest share, the first of those."""
        if self.partitions < _HEAP_FROM:
            return min(self._ranks, key=self._counts.__getitem__)
        if self._heap:
            self._note_decreases()
        else:
            self._heap = [(self._counts[rank], rank) for rank in self._ranks]
            heapq.heapify(self._heap)
        self._moment = self._all.moment
        while self._heap[0][0] != self._counts[self._heap[0][1]]:
            _, rank = self._heap[0]
            heapq.heapreplace(self._heap, (self._counts[rank], rank))
        return self._heap[0][1]

    def _note_decreases(self) -> None:
        for rank in self._all.decreased_since(self._moment):
            place = bisect_left(self._ranks, rank)
            if place < len(self._ranks) and self._ranks[place] == rank:
                heapq.heappush(self._heap, (self._counts[rank], rank))


class _Shares:
    """The shares as they are dealt out. Members are known by their rank."""

    def __init__(self, members: Sequence[Subscriber], topics: Sequence[AssignedTopic]) -> None:
        self._members = sorted(members, key=lambda one: one.rank)
        self._topics = sorted(topics)
        self._given: list[dict[TopicIdPartition, None]] = [{} for _ in self._members]
        self._counts = _Counts(len(self._members))
        self.moves = 0
        """Number of partitions that were moved to even out the shares."""
        self._ranking_of: dict[bytes, _Ranking] = {}
        """By topic id, of topics that someone subscribes to."""
        self._taken: set[TopicIdPartition] = set()

    def rank(self) -> Iterator[None]:
        """Find out who subscribes to what."""
        by_names: dict[frozenset[str], list[int]] = {}
        for rank, one in enumerate(self._members):
            yield
            by_names.setdefault(one.topics, []).append(rank)
        rankings: dict[tuple[int, ...], _Ranking] = {}
        for topic in self._topics:
            yield
            found = [ranks for names, ranks in by_names.items() if topic.name in names]
            ranks = tuple(sorted(chain.from_iterable(found)))
            if ranks:
                ranking = rankings.setdefault(ranks, _Ranking(ranks, self._counts))
                ranking.partitions += topic.partitions
                self._ranking_of[topic.topic_id] = ranking

    def keep(self) -> Iterator[None]:
        """Give members what they have and may keep; the first in rank has what two have by mistake."""
        known = {topic.topic_id: topic for topic in self._topics}
        for rank, one in enumerate(self._members):
            yield
            for partition in sorted(one.target):
                topic = known.get(partition[0])
                may_keep = (
                    topic is not None
                    and topic.name in one.topics
                    and partition[1] < topic.partitions
                )
                if may_keep and partition not in self._taken:
                    self._taken.add(partition)
                    self._given[rank][partition] = None
            self._counts.of[rank] = len(self._given[rank])

    def deal_out(self) -> Iterator[None]:
        """Give away what no one has."""
        for topic in self._topics:
            ranking = self._ranking_of.get(topic.topic_id)
            if ranking is None:
                continue
            for index in range(topic.partitions):
                yield
                partition = (topic.topic_id, index)
                if partition not in self._taken:
                    self._give(ranking.least(), partition)

    def even_out(self) -> Iterator[None]:
        """Move partitions from those with most to those with least."""
        counts = self._counts.of
        heap = [(-count, -rank) for rank, count in enumerate(counts)]
        heapq.heapify(heap)
        least = min(counts, default=0)  # no move makes it smaller
        while heap and -heap[0][0] >= least + 2:
            yield
            count, negative = heapq.heappop(heap)
            rank = -negative
            if -count != counts[rank]:
                continue
            if self._give_one_away(rank):
                self.moves += 1
                heapq.heappush(heap, (-counts[rank], -rank))

    def _give_one_away(self, rank: int) -> bool:
        """Move one of the member's partitions to a member that has at least two less."""
        tried: set[int] = set()
        for partition in reversed(self._given[rank]):
            ranking = self._ranking_of[partition[0]]
            if id(ranking) in tried:
                continue
            tried.add(id(ranking))
            least = ranking.least()
            if self._counts.of[least] + 2 <= self._counts.of[rank]:
                del self._given[rank][partition]
                self._counts.decrease(rank)
                self._give(least, partition)
                return True
        return False

    def _give(self, rank: int, partition: TopicIdPartition) -> None:
        self._given[rank][partition] = None
        self._counts.of[rank] += 1

    def target(self) -> Steps:
        """The shares."""
        target: Target = {}
        for one, given in zip(self._members, self._given, strict=True):
            yield
            target[one.member_id] = frozenset(given)
        return target
