"""A queue that serves addresses round-robin, and the items of one address in arrival order.

An address that queues a thousand items is thus served as often as one that queues a single item.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Addressed(Protocol):
    """Something that came from an address."""

    @property
    def address(self) -> str: ...


Item = TypeVar("Item", bound=Addressed)


class FairQueue(Generic[Item]):
    """Items by address; each operation takes constant time."""

    __slots__ = ("_by_address",)

    def __init__(self) -> None:
        # Dictionaries as ordered sets, so that an item can be removed from any position.
        self._by_address: dict[str, dict[Item, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_address)

    def push(self, item: Item) -> None:
        self._by_address.setdefault(item.address, {})[item] = None

    def head(self) -> Item | None:
        """The next item to serve; it stays in the queue."""
        for items in self._by_address.values():
            return next(iter(items))
        return None

    def serve(self, item: Item) -> None:
        """Removes the head; its address goes to the end."""
        items = self._by_address.pop(item.address)
        del items[item]
        if items:
            self._by_address[item.address] = items

    def discard(self, item: Item) -> None:
        """Removes any item; does nothing if it is not queued."""
        items = self._by_address.get(item.address)
        if items is not None and item in items:
            del items[item]
            if not items:
                del self._by_address[item.address]
