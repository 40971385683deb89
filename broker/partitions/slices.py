"""Long work in slices, so that requests are served in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice


def slices(indexes: Iterable[int], size: int) -> Iterator[list[int]]:
    """Yields the partition indexes in order, `size` at a time."""
    iterator = iter(indexes)
    while some := list(islice(iterator, size)):
        yield some
