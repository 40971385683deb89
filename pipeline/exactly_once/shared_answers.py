"""Leaders' answers that the tasks of one run of a batch share, if they run in one Python process.

Kafka answers DescribeProducers with all producers of a partition, and each task has one. So a process asks once for each
partition in a run, not once for each task, which would cost the square of their number.

Only the first attempt of a task shares: another attempt that sends before it has recorded a `begin`, which it would find instead of creating its
own. The log end is a lower bound for offsets, and may be older; so may the state of a producer that nobody uses.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from echoless.client.sequencer import LeaderEntry
from echoless.client.topic_partition import TopicPartition

SHARED_S: Final = 60.0
"""Age from which an answer is not shared: an attempt that reads back begins at the log end that it has."""
RunKey = tuple[object, ...]


class LeaderAnswer(NamedTuple):
    """A leader's answer about its partition."""

    log_end_offset: int
    producers: Mapping[int, LeaderEntry]
    """All of the partition, by producer id."""


class SharedAnswers:
    """Answers of one run of a batch."""

    def __init__(self) -> None:
        self._run: RunKey = ()
        self._found: dict[TopicPartition, tuple[float, LeaderAnswer]] = {}
        self.compared_run: RunKey = ()
        """The run in which the ledger's lanes were last compared with leaders."""

    def of(
        self, run: RunKey, targets: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderAnswer]:
        """Returns the answers about those of the targets that were asked about in the run a short time ago."""
        if run != self._run:
            return {}
        oldest = time.monotonic() - SHARED_S
        found = {target: self._found.get(target) for target in targets}
        return {
            target: one[1] for target, one in found.items() if one is not None and one[0] >= oldest
        }

    def add(self, run: RunKey, answers: Mapping[TopicPartition, LeaderAnswer]) -> None:
        """Adds answers; those of another run are dropped."""
        if run != self._run:
            self._run, self._found = run, {}
        now = time.monotonic()
        self._found |= {target: (now, one) for target, one in answers.items()}
