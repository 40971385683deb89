"""The ends of a stream's partitions as brokers have them now, compared with where the stream is.

| found | with `failOnDataLoss` | without |
|---|---|---|
| a topic is gone | an error | it is forgotten |
| it is another one of that name, by its id | an error | that one is read from its start |
| a log is shorter than what was read of it | an error, after it was asked again | the stream goes on at its end |
| a new partition that does not begin at 0 | an error | it is read from where it begins |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.reading.bounds import EARLIEST, LATEST, Offsets
from echoless.pipeline.reading.connections import ask_another
from echoless.pipeline.reading.errors import DataLossError
from echoless.pipeline.reading.options import ReaderOptions
from echoless.pipeline.reading.source_topics import PartitionGoneError, SourceTopics
from echoless.pipeline.reading.stream_offsets import StreamOffsets

logger = logging.getLogger(__name__)


class LogEnds(NamedTuple):
    """Ends of the partitions that are read, at one moment."""

    ends: Offsets
    ids: Mapping[str, str]


class NextStretch(NamedTuple):
    """Offsets to read next, in each partition."""

    starts: Offsets
    ends: Offsets
    ids: Mapping[str, str]
    firsts: Offsets
    """Starts of the partitions that the stream has not read before."""

    @property
    def size(self) -> int:
        """Number of offsets."""
        return sum(max(end - self.starts[one], 0) for one, end in self.ends.items())

    @property
    def is_shorter(self) -> bool:
        """Whether a log ends before the offset that the stream has come to."""
        return any(end < self.starts[one] for one, end in self.ends.items())


class StreamEnds:
    """Asks for ends, and judges what is missing."""

    def __init__(
        self, options: ReaderOptions, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._options = options
        self._topics = SourceTopics(options, sleep=sleep)
        self._sleep = sleep
        self._said: set[str] = set()

    def ask(self) -> LogEnds:
        """Asks for the topics that there are now, and their ends. Raises `ReadError`."""
        for _ in range(self._options.attempts - 1):
            try:
                return self._ask()
            except PartitionGoneError:
                pass  # deleted after it was found, perhaps
        return self._ask()

    def _ask(self) -> LogEnds:
        found = self._topics.look_up()
        partitions = self._topics.partitions()
        ids = {name: topic.id_text for name, topic in found.items() if topic.id_text is not None}
        ends = self._topics.offsets(dict.fromkeys(partitions, LATEST))
        return LogEnds({one: end or 0 for one, end in ends.items()}, ids)

    def made_sure(self, begun: StreamOffsets, found: LogEnds) -> LogEnds:
        """Asks other brokers, too, if something is missing or another: the first may not know yet what there is.

        A topic that were forgotten by mistake would come back as a new one, and be read again from its start.
        """
        for _ in range(self._options.attempts):
            if all(
                one in found.ends and begun.has(one, found.ids.get(one.topic)) for one in begun.next
            ):
                break
            self._sleep(self._options.retry_s)
            ask_another(self._options)
            found = self.ask()
        return found

    def stretch(self, begun: StreamOffsets, found: LogEnds) -> NextStretch:
        """Compares them with where the stream is. Raises `DataLossError`, `ReadError`."""
        self._check_topics(begun, found)
        known = {one for one in found.ends if begun.has(one, found.ids.get(one.topic))}
        firsts = self._firsts(begun, set(found.ends) - known)
        starts = {one: begun.next[one] if one in known else firsts[one] for one in found.ends}
        ends = {one: found.ends[one] for one in sorted(found.ends)}
        for one in sorted(known):
            if ends[one] < starts[one]:
                ends[one] = self._asked_again(one, starts[one])
        topics = {one.topic for one in found.ends}
        kept = {topic: one for topic, one in begun.ids.items() if topic in topics}
        return NextStretch(starts, ends, {**kept, **found.ids}, firsts)

    def _check_topics(self, begun: StreamOffsets, found: LogEnds) -> None:
        """Notes topics and partitions that are gone, or are others."""
        for one in sorted(begun.next):
            if one not in found.ends:
                self._lose(f"{one} is gone, or is not read any more: was the topic deleted?")
        for topic in sorted({one.topic for one in begun.next} & found.ids.keys()):
            before, now = begun.ids.get(topic), found.ids[topic]
            if before not in (None, now):
                self._lose(
                    f"topic {topic} was deleted and created again (id {before} is now {now}); what the stream had not read of "
                    "it is gone"
                )

    def _firsts(self, begun: StreamOffsets, new: set[TopicPartition]) -> Offsets:
        """Returns where the partitions begin that the stream has not read before."""
        if not new:
            return {}
        answers = self._topics.offsets(dict.fromkeys(sorted(new), EARLIEST))
        firsts = {one: first or 0 for one, first in answers.items()}
        for one, first in firsts.items():
            if first and one not in begun.next:
                self._lose(
                    f"{one} is new to the stream and begins at {first}: what was before it is gone"
                )
        return firsts

    def _asked_again(self, one: TopicPartition, start: int) -> int:
        """Asks again for an end that is before the start: a new leader may not know it yet."""
        end = 0
        for _ in range(self._options.attempts):
            self._sleep(self._options.retry_s)
            ask_another(self._options)
            self._topics.refresh_leaders()
            end = self._topics.offsets({one: LATEST})[one] or 0
            if end >= start:
                return end
        self._lose(
            f"the log of {one} ends at {end}, and the stream has read up to {start}; an unclean election may have cut it"
        )
        return end

    def _lose(self, text: str) -> None:
        """Raises `DataLossError`, or says it once."""
        if self._options.fails_on_data_loss:
            raise DataLossError(
                f"{text}. Begin a new query with another checkpoint, or set failOnDataLoss=false to go on without that"
            )
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s; failOnDataLoss=false: goes on without that", text)
