"""The assignor `uniform`: equal shares, and as few moves as possible.

Members keep what they have. What no one has goes, in the order of topic and partition, to the member with least;
then partitions move from members with most to those with least, until no single move evens out anything. If
all members subscribe to the same topics, their shares then differ by one at most, and no sequence of moves
would have been shorter; with different subscriptions chains of moves are not tried.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from coordinators.groups.consumer.assignors.inputs import AssignedTopic, Subscriber, Target
from protocol.consumer_offsets.consumer_values import TopicPartition

_PASSES_MAX: Final = 16
"""Members with different subscriptions are evened out so often at most."""


def assign_uniformly(members: Sequence[Subscriber], topics: Sequence[AssignedTopic]) -> Target:
    """Deal out all partitions that a member subscribes to."""
    shares = _Shares(members, topics)
    shares.keep()
    shares.deal_out()
    for _ in range(_PASSES_MAX):
        if not shares.even_out():
            break
    return shares.target()


class _Ranking:
    """The members that subscribe to the same topics, those with least first. Entries may be out of date."""

    def __init__(self, ranks: Iterable[int], counts: list[int]) -> None:
        self._counts = counts
        self._heap = [(counts[rank], rank) for rank in ranks]
        heapq.heapify(self._heap)

    def least(self) -> int:
        """The rank of the member with the smallest share."""
        while self._heap[0][0] != self._counts[self._heap[0][1]]:
            _, rank = self._heap[0]
            heapq.heapreplace(self._heap, (self._counts[rank], rank))
        return self._heap[0][1]

    def note_less(self, rank: int) -> None:
        """Rank a member anew whose share has become smaller."""
        heapq.heappush(self._heap, (self._counts[rank], rank))


class _Shares:
    """The shares as they are dealt out. Members are known by their rank."""

    def __init__(self, members: Sequence[Subscriber], topics: Sequence[AssignedTopic]) -> None:
        self._members = sorted(members, key=lambda one: one.rank)
        self._topics = sorted(topics)
        self._given: list[dict[TopicPartition, None]] = [{} for _ in self._members]
        self._counts = [0] * len(self._members)
        self._rankings: dict[frozenset[int], _Ranking] = {}
        self._ranking_of: dict[bytes, _Ranking | None] = {}
        """By topic id; None: no one subscribes to it."""
        self._taken: set[TopicPartition] = set()
        self._subscribers = self._subscribers_by_topic()

    def _subscribers_by_topic(self) -> dict[bytes, frozenset[int]]:
        ranks: dict[frozenset[str], list[int]] = {}
        for rank, one in enumerate(self._members):
            ranks.setdefault(one.topics, []).append(rank)
        found = {}
        for topic in self._topics:
            groups = [members for topics, members in ranks.items() if topic.name in topics]
            found[topic.topic_id] = frozenset(rank for members in groups for rank in members)
        return found

    def keep(self) -> None:
        """Give members what they have and may keep; the first in rank has what two have by mistake."""
        sizes = {topic.topic_id: topic.partitions for topic in self._topics}
        for rank, one in enumerate(self._members):
            for partition in sorted(one.target):
                topic_id, index = partition
                may_keep = rank in self._subscribers.get(topic_id, ()) and index < sizes[topic_id]
                if may_keep and partition not in self._taken:
                    self._taken.add(partition)
                    self._given[rank][partition] = None
            self._counts[rank] = len(self._given[rank])
        for topic_id, subscribed in self._subscribers.items():
            if subscribed and subscribed not in self._rankings:
                self._rankings[subscribed] = _Ranking(subscribed, self._counts)
            self._ranking_of[topic_id] = self._rankings.get(subscribed)

    def deal_out(self) -> None:
        """Give away what no one has."""
        for topic in self._topics:
            ranking = self._ranking_of[topic.topic_id]
            if ranking is None:
                continue
            for index in range(topic.partitions):
                partition = (topic.topic_id, index)
                if partition not in self._taken:
                    self._give(ranking.least(), partition)

    def even_out(self) -> bool:
        """Move partitions from those with most to those with least. Returns whether any moved."""
        has_moved = False
        heap = [(-count, -rank) for rank, count in enumerate(self._counts)]
        heapq.heapify(heap)
        while heap:
            count, negative = heapq.heappop(heap)
            rank = -negative
            if -count != self._counts[rank]:
                continue
            if self._give_one_away(rank):
                has_moved = True
                heapq.heappush(heap, (-self._counts[rank], -rank))
        return has_moved

    def _give_one_away(self, rank: int) -> bool:
        """Move one of the member's partitions to a member that has at least two less."""
        tried: set[int] = set()
        for partition in reversed(self._given[rank]):
            ranking = self._ranking_of[partition[0]]
            if ranking is None or id(ranking) in tried:
                continue
            tried.add(id(ranking))
            least = ranking.least()
            if self._counts[least] + 2 <= self._counts[rank]:
                del self._given[rank][partition]
                self._counts[rank] -= 1
                for subscribed, one in self._rankings.items():
                    if rank in subscribed:
                        one.note_less(rank)
                self._give(least, partition)
                return True
        return False

    def _give(self, rank: int, partition: TopicPartition) -> None:
        self._given[rank][partition] = None
        self._counts[rank] += 1

    def target(self) -> Target:
        """The shares."""
        return {
            one.member_id: frozenset(given)
            for one, given in zip(self._members, self._given, strict=True)
        }
