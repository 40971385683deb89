"""The bytes of small requests waiting for their answers, over all connections.

A connection may have many requests in flight, and there may be many connections: together, long polls
of some 60 KB each could take all memory. Beyond the bound, or half of it for one address, a connection
with a waiting request is not read until that one is answered; each may always have one.

Invariant: `total` is at most `bytes_max` plus one small request per connection.

Large requests are in `memory_budget.py`. Single owner: the event loop.
"""

from __future__ import annotations

from collections import defaultdict


class WaitingRequests:
    """The requests of all connections that are waiting and still need their bytes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.total = 0
        self._by_host: defaultdict[str, int] = defaultdict(int)

    def count(self, host: str, change: int) -> None:
        """Notes that the requests of the address take `change` bytes more, or fewer if negative."""
        self.total += change
        self._by_host[host] += change
        if not self._by_host[host]:
            del self._by_host[host]

    def is_crowded(self, host: str) -> bool:
        """Whether connections of the address should have one request at a time."""
        return self.total >= self.bytes_max or self._by_host.get(host, 0) >= self.bytes_max // 2
