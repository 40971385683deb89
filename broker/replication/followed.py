"""The partitions followed from one broker, and which of them have something to say to it.

A follower is in at most one of three sets, and in none while its leader knows all there is to know:

| set | it has to |
|---|---|
| `to_name` | say how far its log goes: it is new, its log has changed, or the leader has refused it before |
| `starting` | get the producer state with which its log begins |
| paused | wait for a moment: the leader refused it, or it could not take what the leader sent |

Knows nothing of messages (`leader_session.py`).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from echoless.broker.replication.follower import Follower


class Followed:
    """Used from one event loop; times are the loop's."""

    def __init__(self) -> None:
        self._by_name: dict[str, Follower] = {}
        self.to_name: dict[Follower, None] = {}
        """In the order in which they are named. A dictionary as an ordered set, as `starting` is."""
        self.starting: dict[Follower, None] = {}
        self._paused: dict[Follower, float] = {}
        """When each is due again."""
        self._dues: list[tuple[float, int, Follower]] = []
        """A heap of these times; those that are not in `_paused` any more do not count."""
        self._tickets = itertools.count()

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, follower: Follower) -> bool:
        return self._by_name.get(follower.partition.name) is follower

    def add(self, follower: Follower) -> None:
        """Follows a partition, in place of an earlier leader epoch's follower."""
        self.remove(follower.partition.name)
        self._by_name[follower.partition.name] = follower
        self.ask(follower)

    def remove(self, name: str) -> Follower | None:
        """The follower of this partition, which is followed no longer."""
        follower = self._by_name.pop(name, None)
        if follower is not None:
            self._take_out(follower)
        return follower

    def ask(self, follower: Follower) -> None:
        """Notes that it has something to say, unless it is paused or no longer followed."""
        if follower in self and follower not in self._paused:
            self._take_out(follower)
            (self.to_name if follower.bootstrap is None else self.starting)[follower] = None

    def ask_all(self) -> None:
        """The leader knows nothing of any of them."""
        for follower in self._by_name.values():
            self.ask(follower)

    def take_named(self, count: int | None) -> list[Follower]:
        """Takes the first `count` out of `to_name`, or all of them; leaves out those whose logs take nothing."""
        taken = list(itertools.islice(self.to_name, count))
        for follower in taken:
            del self.to_name[follower]
        return [follower for follower in taken if takes_what_is_fetched(follower)]

    def all_starting(self) -> list[Follower]:
        """Returns those of `starting` whose logs take what is fetched, and takes out the others."""
        for follower in [one for one in self.starting if not takes_what_is_fetched(one)]:
            del self.starting[follower]
        return list(self.starting)

    def pause(self, follower: Follower, until_s: float) -> None:
        """Leaves it alone until then."""
        if follower in self:
            self._take_out(follower)
            self._paused[follower] = until_s
            heapq.heappush(self._dues, (until_s, next(self._tickets), follower))

    def resume(self, now_s: float) -> None:
        """Asks those whose pause is over."""
        for due_s, follower in self._pauses():
            if due_s > now_s:
                return
            heapq.heappop(self._dues)
            del self._paused[follower]
            self.ask(follower)

    def next_due_s(self) -> float | None:
        """When the first pause is over; None if there is none."""
        return next((due_s for due_s, _ in self._pauses()), None)

    def _pauses(self) -> Iterator[tuple[float, Follower]]:
        """The first pause, as long as there is one."""
        dues = self._dues
        while dues:
            due_s, _, follower = dues[0]
            if self._paused.get(follower) == due_s:
                yield due_s, follower
            else:
                heapq.heappop(dues)

    def _take_out(self, follower: Follower) -> None:
        self.to_name.pop(follower, None)
        self.starting.pop(follower, None)
        self._paused.pop(follower, None)


def takes_what_is_fetched(follower: Follower) -> bool:
    """Whether its log takes what is fetched: not in another role, nor after a change that failed half-way."""
    return follower.is_current and follower.partition.log.failure is None
