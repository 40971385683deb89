"""The time for which a producer id may be used, and when another may take its place.

Brokers forget a producer that has been silent for `expiration_s`, in each partition by itself. So an id is replaced
at half that age: every partition then knows all that was written under it. Two conditions keep another member,
which has lost its partitions and does not know it yet, from writing the next record under the old id while this one
writes it under the new:

* a member writes nothing if the group has not confirmed it for `silence_s`;
* an id is replaced only where no other member can have been confirmed for twice as long.

Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from echoless.client.copier.position import Position


class IdAges(NamedTuple):
    """The ages, in seconds."""

    expiration_s: float

    @property
    def silence_s(self) -> float:
        """A member that was confirmed longer ago writes nothing."""
        return self.expiration_s / 24

    @property
    def _alone_s(self) -> float:
        return 2 * self.silence_s

    def may_replace(self, age_s: float, owned_s: float) -> bool:
        """Whether an id of this age gets a successor, in a partition owned for `owned_s` without a break."""
        return age_s >= self.expiration_s / 2 and owned_s >= self._alone_s

    def may_replace_at_start(self, position: Position, now_ms: int) -> bool:
        """The same for a position that was just read: its copier must have ended there, long enough ago."""
        age_s, since_s = (now_ms - position.born_ms) / 1000, (now_ms - position.at_ms) / 1000
        return position.is_clean and self.may_replace(age_s, since_s)

    def is_doubtful(self, position: Position, now_ms: int) -> bool:
        """Whether brokers may have forgotten partitions that were written after the position was committed."""
        age_s = (now_ms - position.born_ms) / 1000
        return not position.is_clean and age_s >= self.expiration_s - self.silence_s
