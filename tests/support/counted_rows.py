"""A dictionary that counts how often one of its rows is looked at, by key or in a walk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class CountedRows(dict[K, V]):
    """`looks` counts since someone has last set it to 0; `keys_seen` are the keys of these looks."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.keys_seen: dict[K, None] = {}

    def forget(self) -> None:
        self.looks = 0
        self.keys_seen = {}

    def _look(self, key: K) -> K:
        self.looks += 1
        self.keys_seen[key] = None
        return key

    def __iter__(self) -> Iterator[K]:
        return map(self._look, super().__iter__())

    def __getitem__(self, key: K) -> V:
        return super().__getitem__(self._look(key))

    def get(self, key: K, default: Any = None) -> Any:
        return super().get(self._look(key), default)

    def keys(self) -> Any:
        return list(self)

    def values(self) -> Any:
        return [super(CountedRows, self).__getitem__(key) for key in self]

    def items(self) -> Any:
        return [(key, super(CountedRows, self).__getitem__(key)) for key in self]
