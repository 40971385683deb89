"""Measures of use: a rate over the last seconds, and a bucket of tokens. As Kafka's `Rate` and `TokenBucket`.

Times are monotonic seconds, passed in. Each counts what all connections of one user or client use.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from echoless.broker.config.values import INT32_MAX

SAMPLES: Final = 11
"""Kafka's `quota.window.num`: ten whole ones, and the present one."""
SAMPLE_S: Final = 1.0
"""Kafka's `quota.window.size.seconds`."""
WHOLE_WINDOW_S: Final = (SAMPLES - 1) * SAMPLE_S
THROTTLE_MS_MAX: Final = INT32_MAX


class Rate:
    """The use per second, in the last ten seconds or a little more."""

    __slots__ = ("_samples", "limit")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._samples: deque[list[float]] = deque()
        """The beginning of each, and what was used in it."""

    @property
    def most_at_once(self) -> int:
        """The most that may be used at once, after a while without use."""
        return int(self.limit * WHOLE_WINDOW_S)

    def record(self, used: float, now: float) -> int:
        """Counts a use; returns for how many milliseconds the client has to pause."""
        self._forget(now)
        samples = self._samples
        if samples and now - samples[-1][0] < SAMPLE_S:
            samples[-1][1] += used
        else:
            samples.append([now, used])
        return self.throttle_ms(now)

    def throttle_ms(self, now: float) -> int:
        """The time in which nothing may be used until the rate is back at the limit."""
        self._forget(now)
        if not self._samples:
            return 0
        elapsed = now - self._samples[0][0]
        window = elapsed + max(SAMPLES - 1 - int(elapsed / SAMPLE_S), 0) * SAMPLE_S
        rate = sum(used for _, used in self._samples) / window
        if rate <= self.limit:
            return 0
        pause = (rate - self.limit) / self.limit * window * 1000
        return min(max(round(pause), 1), THROTTLE_MS_MAX)

    def is_unused(self, now: float) -> bool:
        """Whether this knows no more than a new one."""
        self._forget(now)
        return not self._samples

    def _forget(self, now: float) -> None:
        oldest = now - SAMPLES * SAMPLE_S
        samples = self._samples
        while samples and samples[0][0] <= oldest:
            samples.popleft()


class TokenBucket:
    """Tokens that come at a constant rate; more may be taken than there are, which is a debt."""

    __slots__ = ("_at", "_tokens", "limit")

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self._tokens = self._most
        self._at = now

    @property
    def _most(self) -> float:
        return self.limit * SAMPLES * SAMPLE_S

    def take(self, tokens: float, now: float) -> None:
        """Takes them, even if there are not as many."""
        self._refill(now)
        self._tokens -= tokens

    def throttle_ms(self, now: float) -> int:
        """The time until there is no debt."""
        self._refill(now)
        if self._tokens >= 0:
            return 0
        return min(max(round(-self._tokens / self.limit * 1000), 1), THROTTLE_MS_MAX)

    def is_unused(self, now: float) -> bool:
        """Whether this knows no more than a new one."""
        self._refill(now)
        return self._tokens >= self._most

    def _refill(self, now: float) -> None:
        self._tokens = min(self._tokens + (now - self._at) * self.limit, self._most)
        self._at = now
