"""Pairs of offsets at which source and target agree, and the translation of a group's offset by them.

A pair says of one partition: when all records below `source` were stored in the target, and none from there on, the
target's log ended at `target`. So a consumer of the target that continues at `target` gets every record from `source`
on, whatever others have written to the target.

An offset that lies between two pairs is translated by the lower one: the consumer reads again what is between, and
loses nothing. Below all pairs it is translated to the target's first offset.

Pairs are kept more sparsely the older they are: a consumer that lags behind by N records reads about N again, and the
last batch of the mirror. They are stored as the metadata of a commit, `source:target,...`, the newest first, as
differences from the one before after the first.

Pure: knows nothing of brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

TEXT_MAX: Final = 2048
"""Characters of stored pairs: half of what brokers accept as metadata by default."""


class OffsetPair(NamedTuple):
    """One point at which source and target agree."""

    source: int
    target: int


@dataclass(slots=True, frozen=True)
class OffsetPairs:
    """The pairs of one partition, the newest first. Invariant: both offsets descend, the source's strictly."""

    pairs: tuple[OffsetPair, ...] = ()

    def with_pair(self, pair: OffsetPair) -> Self:
        """Adds the newest pair, and drops older ones that others stand for.

        A pair that is not ahead of the newest one replaces nothing: the source's offsets were reset, or a batch was run
        again.
        """
        if self.pairs and (
            pair.source <= self.pairs[0].source or pair.target < self.pairs[0].target
        ):
            return self
        return type(self)(_thinned((pair, *self.pairs)))

    def translate(self, source: int) -> int | None:
        """Returns an offset of the target from which on nothing from `source` on is missing; None below all pairs."""
        return next((pair.target for pair in self.pairs if pair.source <= source), None)

    def to_text(self) -> str:
        """Returns the pairs as metadata of a commit, of `TEXT_MAX` characters at most; the oldest are left out."""
        text = ""
        before = OffsetPair(0, 0)
        for index, pair in enumerate(self.pairs):
            down = (
                pair
                if index == 0
                else OffsetPair(*(b - a for a, b in zip(pair, before, strict=True)))
            )
            item = f"{down.source}:{down.target}"
            if len(text) + 1 + len(item) > TEXT_MAX:
                break
            text += f",{item}" if text else item
            before = pair
        return text

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Reads the metadata of a commit; another's metadata has no pairs."""
        pairs: list[OffsetPair] = []
        try:
            for item in text.split(",") if text else ():
                source, target = map(int, item.split(":"))
                last = pairs[-1] if pairs else OffsetPair(2 * source, 2 * target)
                pairs.append(OffsetPair(last.source - source, last.target - target))
        except ValueError:
            return cls()
        return cls(tuple(pairs)) if all(min(pair) >= 0 for pair in pairs) else cls()


def _thinned(pairs: Sequence[OffsetPair]) -> tuple[OffsetPair, ...]:
    """Keeps pairs whose distance from the newest grows to half as much again at each step, and the newest two."""
    newest, *rest = pairs
    kept = [newest]
    for index, pair in enumerate(rest):
        following = rest[index + 1] if index + 1 < len(rest) else None
        distance = newest.source - kept[-1].source
        is_needed = following is None or newest.source - following.source > 1.5 * max(distance, 1)
        if index == 0 or is_needed:
            kept.append(pair)
    return tuple(kept)
