"""Offsets of a stream: where each partition goes on, and of which topic.

As JSON they are those of Spark's Kafka source and a little more; no topic's name has a `$`:

    {"orders": {"0": 120, "1": 97}, "$ids": {"orders": "7d69f594-..."}, "$firsts": {"orders": {"1": 17}}}

`$ids` tells a topic from another one that was created later under its name. `$firsts` are the first offsets of the partitions that are new
in the batch that ends here, where they are not 0: so two offsets say all about a batch, whenever it is planned.

Invariant: equal offsets are equal text, since Spark compares the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.reading.bounds import Offsets
from echoless.pipeline.reading.span import OffsetSpan

_IDS: Final = "$ids"
_FIRSTS: Final = "$firsts"


class StreamOffsets(NamedTuple):
    """Offsets that a micro-batch begins or ends with."""

    next: Mapping[TopicPartition, int]
    """The offset after the last one that was taken, of each partition."""
    ids: Mapping[str, str]
    """By topic; empty for brokers without ids."""
    firsts: Mapping[TopicPartition, int] = {}

    def as_json(self) -> dict[str, Any]:
        """Returns what Spark keeps in the checkpoint."""
        ids = {_IDS: dict(sorted(self.ids.items()))} if self.ids else {}
        firsts = {one: first for one, first in self.firsts.items() if first}
        return {**_nested(self.next), **ids, **({_FIRSTS: _nested(firsts)} if firsts else {})}

    def has(self, one: TopicPartition, topic_id: str | None) -> bool:
        """Whether the partition goes on here, as one of the same topic, as far as both ids are known.

        Brokers before 2.8 have none, and those of a cluster begin to have them one after the other.
        """
        known = self.ids.get(one.topic)
        return one in self.next and (None in (known, topic_id) or known == topic_id)

    def spans_to(self, end: StreamOffsets) -> list[OffsetSpan]:
        """Returns what a batch from here to `end` reads of each partition, perhaps nothing."""
        spans = []
        for one, end_offset in end.next.items():
            topic_id = end.ids.get(one.topic)
            is_known = self.has(one, topic_id)
            start = self.next[one] if is_known else end.firsts.get(one, 0)
            spans.append(OffsetSpan(*one, start, end_offset, topic_id))
        return spans


def parse_stream_offsets(value: Mapping[str, Any]) -> StreamOffsets:
    """Reads `StreamOffsets.as_json`."""
    topics = {name: parts for name, parts in value.items() if not name.startswith("$")}
    return StreamOffsets(_flat(topics), value.get(_IDS, {}), _flat(value.get(_FIRSTS, {})))


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for one, offset in sorted(offsets.items()):
        found.setdefault(one.topic, {})[str(one.partition)] = offset
    return found


def _flat(topics: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, parts in topics.items()
        for partition, offset in parts.items()
    }
