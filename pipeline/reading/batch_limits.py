"""The size of a micro-batch: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`, `maxTriggerDelay`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Final

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.reading.bounds import Offsets

_NEVER: Final = -math.inf


def limited_ends(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], offsets_max: int
) -> Offsets:
    """Shares the limit among partitions in proportion to what each has, as Spark's source does.

    A partition that has anything gets one offset at least, so the sum may exceed the limit.
    """
    sizes = {one: max(end - starts[one], 0) for one, end in ends.items()}
    total = sum(sizes.values())
    if total == 0:
        return dict(ends)
    return {
        one: min(end, starts[one] + max(offsets_max * sizes[one] // total, 1))
        if sizes[one]
        else end
        for one, end in ends.items()
    }


class TriggerDelay:
    """Holds micro-batches back while there are few offsets, but not for longer than the delay; the first one never."""

    def __init__(
        self,
        offsets_min: int | None,
        delay_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._offsets_min = offsets_min
        self._delay_s = delay_s
        self._clock_s = clock_s
        self._passed_at = _NEVER

    def holds(self, offset_count: int) -> bool:
        """Whether to wait; notes the time if not."""
        now = self._clock_s()
        is_late = now - self._passed_at >= self._delay_s
        if self._offsets_min is not None and offset_count < self._offsets_min and not is_late:
            return True
        self._passed_at = now
        return False
