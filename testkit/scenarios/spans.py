"""The batches of the story, by the numbers of their records."""

from __future__ import annotations

from typing import Final, NamedTuple


class Span(NamedTuple):
    """One batch of the story, by the numbers of its records, which are its sequences."""

    name: str
    first: int
    last: int

    @property
    def numbers(self) -> range:
        return range(self.first, self.last + 1)

    @property
    def sequences(self) -> str:
        """The sequences as a fault rule matches them."""
        return f"{self.first}-{self.last}"

    def __str__(self) -> str:
        return f"{self.name} ({self.first}-{self.last})"


PRELUDE: Final = Span("0-113", 0, 113)
"""Records stored before the story begins, so that A begins at 114."""
A: Final = Span("A", 114, 120)
B: Final = Span("B", 121, 124)
C: Final = Span("C", 125, 132)
D: Final = Span("D", 133, 142)
E: Final = Span("E", 143, 150)
F: Final = Span("F", 151, 155)
