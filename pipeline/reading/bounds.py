"""The start and the end of a reading: words, offsets or timestamps, as options have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.reading.errors import ReadError, ReadOptionError

EARLIEST: Final = -2
LATEST: Final = -1
"""The numbers of ListOffsets, which offsets given as JSON use, too."""
_NEEDED: Final = 'JSON like {"orders": {"0": 120, "1": 97}} is needed'
_TIME_MAX: Final = 2**63 - 1
"""Largest number that a request has room for."""
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a reading."""

    option: str
    """Name of the option that it was given by, or would be."""
    value: int | Mapping[TopicPartition, int]
    """For all partitions, or for each one."""
    is_time: bool = False
    """Whether the numbers are timestamps in ms; else they are offsets, `EARLIEST` or `LATEST`."""
    of_topics: Mapping[str, int] = field(default_factory=dict)
    """`EARLIEST` or `LATEST` for all partitions of a topic, beside those that `value` names."""

    @property
    def is_explicit(self) -> bool:
        """Whether it names an offset for each partition."""
        return isinstance(self.value, Mapping) and not self.is_time

    def uses(self, offset: int) -> bool:
        """Whether `offset`, which is `EARLIEST` or `LATEST`, is meant for some partition."""
        if self.is_time:
            return False
        if not isinstance(self.value, Mapping):
            return offset == self.value
        return offset in self.value.values() or offset in self.of_topics.values()


class AnsweredOffsets(Protocol):
    """Asks brokers for the first offset at or after a timestamp, or for `EARLIEST` or `LATEST`; None: there is none."""

    def __call__(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Raises `ReadError`."""


def parse_offsets_bound(option: str, text: str) -> Bound:
    """Reads `earliest`, `latest`, or JSON, in which a topic may have one of the words. Raises `ValueError`."""
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return Bound(option, word)
    topics = _parse_topics(text)
    words = {name: _word(name, found) for name, found in topics.items() if isinstance(found, str)}
    named = {name: found for name, found in topics.items() if name not in words}
    return Bound(option, _flat(named, _offset), of_topics=words)


def parse_times_bound(option: str, text: str) -> Bound:
    """Reads `{"orders": {"0": 1700000000000}}`, in ms. Raises `ValueError`."""
    return Bound(option, _flat(_parse_topics(text), _time), is_time=True)


def parse_time_bound(option: str, text: str) -> Bound:
    """Reads ms since 1970, for all partitions. Raises `ValueError`."""
    return Bound(option, _time(int(text)), is_time=True)


def _parse_topics(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if type(found) is not dict:
        raise ValueError(_NEEDED)
    return found


def _flat(topics: Mapping[str, Any], number: Callable[[Any], int]) -> Mapping[TopicPartition, int]:
    """Reads `{"orders": {"0": 120}}`. Raises `ValueError`."""
    if not all(isinstance(partitions, dict) for partitions in topics.values()):
        raise ValueError(_NEEDED)
    return {
        TopicPartition(topic, int(partition)): number(value)
        for topic, partitions in topics.items()
        for partition, value in partitions.items()
    }


def resolve(
    bound: Bound,
    partitions: Collection[TopicPartition],
    ask: AnsweredOffsets,
    *,
    is_end: bool = False,
    takes_latest: bool = False,
) -> Offsets:
    """Returns the offset of each partition.

    Where no record is as late as a timestamp, that is the end of the log if this is an end, or if `takes_latest`. Raises
    `ReadOptionError` if the option does not name just these partitions, or no record is as late; `ReadError`.
    """
    numbers = _numbers(bound, partitions)
    asked = {
        one: number
        for one, number in numbers.items()
        if bound.is_time or number in (EARLIEST, LATEST)
    }
    answers = dict(ask(asked)) if asked else {}
    late = [one for one, offset in answers.items() if offset is None]
    if late and not (is_end or takes_latest):
        raise ReadOptionError(
            f"option {bound.option}: {_names(late)} has no record as late as that; give an earlier time, or "
            "startingOffsetsByTimestampStrategy=latest to begin at the end there"
        )
    answers |= ask(dict.fromkeys(late, LATEST)) if late else {}
    found = {**numbers, **answers}
    return {one: _known(one, found[one]) for one in sorted(found)}


def check_times(start: Bound, end: Bound) -> None:
    """Raises `ReadOptionError` if both are times, and one end is earlier than its start: whatever the offsets there are."""
    if not (start.is_time and end.is_time):
        return
    if isinstance(start.value, Mapping) and isinstance(end.value, Mapping):
        shared = sorted(start.value.keys() & end.value.keys())
        times = [(str(one), start.value[one], end.value[one]) for one in shared]
    elif isinstance(start.value, int) and isinstance(end.value, int):
        times = [("the reading", start.value, end.value)]
    else:
        return
    for what, begins, ends in times:
        if begins > ends:
            raise ReadOptionError(
                f"options {start.option} and {end.option}: {what} would start at {begins} and end at {ends}"
            )


def _numbers(bound: Bound, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    value = bound.value
    if not isinstance(value, Mapping):
        return dict.fromkeys(partitions, value)
    words = bound.of_topics
    by_topic = {one: words[one.topic] for one in partitions if one.topic in words}
    missing = set(partitions) - value.keys() - by_topic.keys()
    if missing:
        raise ReadOptionError(
            f"option {bound.option} does not name {_names(missing)}; it has to name every partition that is read, "
            f"-2 for its earliest offset"
        )
    surplus = {str(one) for one in value.keys() - set(partitions)}
    surplus |= words.keys() - {one.topic for one in partitions}
    if surplus:
        raise ReadOptionError(
            f"option {bound.option} names {_first(sorted(surplus))}, which is not read; leave it out"
        )
    return {**value, **by_topic}


def _known(partition: TopicPartition, offset: int | None) -> int:
    if offset is None:
        raise ReadError(f"{partition.topic}-{partition.partition}: the broker does not say its end")
    return offset


def _names(partitions: Collection[TopicPartition]) -> str:
    return _first(map(str, sorted(partitions)))


def _first(names: Iterable[str]) -> str:
    first, *rest = names
    more = f" and {len(rest)} more" if rest else ""
    return f"{first}{more}"


def _word(topic: str, text: str) -> int:
    if text.strip().lower() not in _WORDS:
        raise ValueError(f"{text!r} of topic {topic} is neither earliest nor latest")
    return _WORDS[text.strip().lower()]


def _offset(value: Any) -> int:
    if type(value) is not int or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset, -1 (latest) or -2 (earliest)")
    return value


def _time(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _TIME_MAX:
        raise ValueError(f"{value!r} is not a time in ms since 1970")
    return value
