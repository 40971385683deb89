"""The topics of the cluster, as far as groups depend on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

_UNKNOWN: Final = 0
_COUNT_BYTES: Final = 4


class KnownTopic(NamedTuple):
    topic_id: bytes
    partitions: int


class KnownTopics(Protocol):
    """The topics as they are now; the shell keeps them."""

    @property
    def version(self) -> int:
        """Changes with every topic that is created, extended or deleted."""

    def find(self, name: str) -> KnownTopic | None:
        """The topic; None if there is none of that name."""


class NoTopics:
    """A cluster without topics."""

    version = 0

    def find(self, name: str) -> KnownTopic | None:  # noqa: ARG002 - as the protocol has it
        return None


def metadata_hash(names: Iterable[str], topics: KnownTopics) -> int:
    """A number that changes with the existence, the id and the partition count of these topics; never 0."""
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, and most brokers have no such groups

    hashed = hashlib.blake2b(digest_size=8)
    known = [(name, found) for name in names if (found := topics.find(name)) is not None]
    for name, found in sorted(known):
        hashed.update(name.encode() + b"\0" + found.topic_id)
        hashed.update(found.partitions.to_bytes(_COUNT_BYTES, "big"))
    return int.from_bytes(hashed.digest(), "big", signed=True) or 1
