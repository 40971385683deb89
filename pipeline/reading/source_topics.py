"""The topics of a reader as brokers have them now: their partitions, and offsets by ListOffsets.

For the driver: one metadata request and one ListOffsets to each leader. A cluster that does not answer at all is asked
`fetchOffset.numRetries` times; one that has answered before, for `kafka.default.api.timeout.ms`: leaders move, and brokers start again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from echoless.client.connection import AuthenticationError, ConnectionFailedError
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.reading.connections import (
    Address,
    ask,
    ask_another,
    has_another,
    has_met,
)
from echoless.pipeline.reading.errors import ReadError
from echoless.pipeline.reading.options import ReaderOptions
from echoless.pipeline.reading.topic_metadata import FoundTopic, read_topics
from echoless.protocol.errors import ErrorCode

_NO_OFFSET: Final = -1
_T = TypeVar("_T")


class _NotNowError(Exception):
    """Another attempt may succeed; the message says why this one did not."""


class PartitionGoneError(ReadError):
    """Brokers do not have a partition that was found; topics are to be looked up again."""


class SourceTopics:
    """Asks brokers about the topics that the options choose. The answers are of one moment each."""

    def __init__(
        self, options: ReaderOptions, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._options = options
        self._sleep = sleep
        self._topics: Mapping[str, FoundTopic] = {}

    def look_up(self) -> Mapping[str, FoundTopic]:
        """Returns the chosen topics that exist, by name. Raises `ReadError`."""
        self._topics = self._until_answered(self._chosen)
        return self._topics

    def _chosen(self) -> Mapping[str, FoundTopic]:
        return self._checked(self._named())

    def _chosen_by_two(self) -> Mapping[str, FoundTopic]:
        """Returns what either of two brokers names, if there are two."""
        found = self._named()
        if has_another(self._options):
            ask_another(self._options)
            found = _merged(found, self._named())
        return self._checked(found)

    def _named(self) -> dict[str, FoundTopic]:
        choice = self._options.topics
        names = choice.wanted_names
        return {
            name: topic
            for name, topic in read_topics(self._options, names).items()
            if choice.takes(name) and not (topic.is_internal and names is None)
        }

    def _checked(self, found: Mapping[str, FoundTopic]) -> Mapping[str, FoundTopic]:
        assigned = dict(self._options.topics.assigned)
        for name, topic in found.items():
            if not topic.leaders:  # some brokers say so of a topic that they are about to create
                raise _NotNowError(f"topic {name}: the broker names no partition of it")
            for partition in assigned.get(name, ()):
                if partition not in topic.leaders:
                    raise PartitionGoneError(
                        f"option assign: topic {name} has no partition {partition}, only {len(topic.leaders)}"
                    )
        return dict(sorted(found.items()))

    def find(self) -> Mapping[str, FoundTopic]:
        """Returns the same, as two brokers in turn name them: one may not know yet what was created just now.

        Raises `ReadError` if a topic that is named does not exist.
        """
        names = self._options.topics.wanted_names or ()
        missing: list[str] = []
        for attempt in range(self._options.attempts):
            if attempt:
                self._sleep(self._options.retry_s)
            found = self._topics = self._until_answered(self._chosen_by_two)
            missing = [name for name in names if name not in found]
            if not missing:
                return found
            ask_another(self._options)
        raise ReadError(
            f"topic {', '.join(missing)}: it does not exist at {self._options.bootstrap_servers}"
        )

    def partitions(self) -> list[TopicPartition]:
        """Returns the partitions to read of the topics that were found."""
        assigned = dict(self._options.topics.assigned)
        return [
            TopicPartition(name, partition)
            for name, topic in self._topics.items()
            for partition in assigned.get(name, topic.leaders)
        ]

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Returns the first offset at or after a timestamp, or for -2 and -1 the first one and the end; None: there is none.

        With read_committed the end is that of what is decided. Raises `ReadError`.
        """
        return self._until_answered(lambda: self._offsets(wanted))

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for address, partitions in self._by_leader(wanted).items():
            request = self._request({one: wanted[one] for one in partitions})
            for topic in ask(self._options, address, "list_offsets", request).topics:
                for one in topic.partitions:
                    target = TopicPartition(topic.name, one.partition_index)
                    found[target] = _offset_in(target, one)
        return found

    def _by_leader(self, wanted: Iterable[TopicPartition]) -> dict[Address, list[TopicPartition]]:
        by_leader: dict[Address, list[TopicPartition]] = {}
        for one in wanted:
            topic = self._topics.get(one.topic)
            if topic is None:
                raise PartitionGoneError(f"topic {one.topic}: it does not exist any more")
            leader = topic.leaders.get(one.partition)
            if leader is None:
                raise _NotNowError(f"{one} has no leader")
            by_leader.setdefault(leader, []).append(one)
        return by_leader

    def _request(self, wanted: Mapping[TopicPartition, int]) -> dict[str, Any]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for one, timestamp in wanted.items():
            part = {
                "partition_index": one.partition,
                "current_leader_epoch": -1,
                "timestamp": timestamp,
            }
            topics.setdefault(one.topic, []).append(part)
        return {
            "replica_id": -1,
            "isolation_level": self._options.isolation,
            "timeout": 30_000,
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        }

    def _until_answered(self, attempt: Callable[[], _T]) -> _T:
        """Tries until there is an answer; asks for the leaders again after a failure."""
        began = time.monotonic()
        for failures in itertools.count(1):
            is_last = failures >= self._options.attempts
            try:
                return attempt()
            except AuthenticationError as error:
                raise ReadError(str(error)) from error
            except PartitionGoneError:
                if is_last:
                    raise
            except (ConnectionFailedError, _NotNowError) as error:
                limit_s = self._options.answer_timeout_s if has_met(self._options) else 0.0
                if is_last and time.monotonic() - began >= limit_s:
                    raise ReadError(str(error)) from error
            self._sleep(self._options.retry_s)
            ask_another(self._options)
            if self._topics:
                self.refresh_leaders()
        raise AssertionError("it counts without end")

    def refresh_leaders(self) -> None:
        """Takes the leaders of the topics that are known, not the topics that exist now."""
        try:
            found = read_topics(self._options, list(self._topics))
        except ConnectionFailedError:
            return
        self._topics = {
            name: topic._replace(leaders=found[name].leaders)
            if name in found and topic.may_be(found[name])
            else topic
            for name, topic in self._topics.items()
        }


def _merged(
    some: Mapping[str, FoundTopic], others: Mapping[str, FoundTopic]
) -> dict[str, FoundTopic]:
    """Returns the topics and partitions that are in either. Raises `_NotNowError` if one is two topics by its ids."""
    merged = {**some, **others}
    for name in some.keys() & others.keys():
        one, other = some[name], others[name]
        if not one.may_be(other):
            ids = f"ids {one.topic_id} and {other.topic_id}"
            raise _NotNowError(
                f"topic {name}: brokers name two of them, {ids}; was it created again?"
            )
        known = {number: leader for number, leader in other.leaders.items() if leader is not None}
        merged[name] = FoundTopic(
            one.topic_id or other.topic_id,
            one.is_internal,
            dict(sorted({**other.leaders, **one.leaders, **known}.items())),
        )
    return merged


def _offset_in(target: TopicPartition, part: Any) -> int | None:
    code = ErrorCode(int(part.error_code.value))
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise ReadError(f"topic {target.topic}: it may not be read; grant Read on it")
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise PartitionGoneError(f"{target}: list_offsets: {code.name}")
    if code is not ErrorCode.NONE and not code.retriable:
        raise ReadError(f"{target}: list_offsets: {code.name}")
    if code is not ErrorCode.NONE:
        raise _NotNowError(f"{target}: list_offsets: {code.name}")
    return None if part.offset == _NO_OFFSET else int(part.offset)
