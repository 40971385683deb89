"""Repeated entries of a request; Kafka refuses them, because only one could win."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def repeated(values: Iterable[T]) -> set[T]:
    """The values that occur at least twice."""
    return {value for value, count in Counter(values).items() if count > 1}
