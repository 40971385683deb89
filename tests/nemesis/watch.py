"""Watches a run from outside: how long no record was acknowledged, and no broker led a partition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Final, Self

from tests.support.cluster import Cluster

_INTERVAL_S: Final = 0.1


class LongestGap:
    """The longest time between two sightings of something. Times are in seconds."""

    def __init__(self, now: float) -> None:
        self._seen_at = now
        self.longest = 0.0
        self.ended_at = now

    def see(self, now: float) -> None:
        """Records a sighting at `now`."""
        if now - self._seen_at > self.longest:
            self.longest = now - self._seen_at
            self.ended_at = now
        self._seen_at = max(now, self._seen_at)


class Watch:
    """Threads that look until `stop`: one at the acknowledgements, one at each broker.

    A partition has a leader at a moment when some broker answers that it leads it. A broker that is
    paused or cut off does not answer, whatever others believe about it.
    """

    def __init__(
        self,
        cluster: Cluster,
        partitions: Collection[tuple[str, int]],
        acknowledged: Callable[[], int],
    ) -> None:
        self.began = time.monotonic()
        self.acknowledgements = LongestGap(self.began)
        self.leaders = {place: LongestGap(self.began) for place in partitions}
        self.leader_epochs = dict.fromkeys(partitions, 0)
        self._cluster = cluster
        self._acknowledged = acknowledged
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._watch_acknowledgements)]
        self._threads += [
            threading.Thread(target=self._watch_broker, args=[broker_id])
            for broker_id in cluster.brokers
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    @property
    def longest_without_leader_s(self) -> float:
        """The longest time over all partitions."""
        return max((gap.longest for gap in self.leaders.values()), default=0.0)

    def _watch_acknowledgements(self) -> None:
        before = self._acknowledged()
        while not self._stopping.wait(_INTERVAL_S):
            now, count = time.monotonic(), self._acknowledged()
            if count != before:
                self.acknowledgements.see(now)
            before = count

    def _watch_broker(self, broker_id: int) -> None:
        while not self._stopping.wait(_INTERVAL_S):
            rows = self._cluster.rows_if_any(broker_id)
            now = time.monotonic()
            with self._lock:
                for row in rows:
                    place = (row.topic, row.partition)
                    if row.leader == broker_id and place in self.leaders:
                        self.leaders[place].see(now)
                        self.leader_epochs[place] = max(self.leader_epochs[place], row.leader_epoch)
