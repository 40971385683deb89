"""Requests of ZooKeeper's protocol that kazoo lacks, each for many nodes: a topic of a thousand partitions has as many.

One request for each node costs this process and the server 50 to 200 us; in a batch it is a few.

* `MultiRead` (operation 22, ZooKeeper 3.6): the data and statistics of nodes. The reads are no transaction.
* `SetWatches` (operation 101, every ZooKeeper): arms watches of nodes that exist, and of nodes that do not, as a client
  does that connects again. One for a node that is not as expected fires at once, and is not armed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    GetData,
    int_struct,
    long_struct,
    multiheader_struct,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

PATHS_MAX: Final = 500
"""In one request: with the longest names of topics 150 KB, of the 1 MB that a server takes."""
_NEVER: Final = 2**63 - 1
"""A transaction after all others: no change is found to have been missed, watches are only armed."""
_ERROR: Final = -1
"""The type of a result that is an error."""


@dataclass(slots=True, frozen=True)
class MultiRead:
    """Answered with data and statistics, or the error, of each path."""

    type: ClassVar = 22
    paths: Sequence[str]

    def serialize(self) -> bytearray:
        request = bytearray()
        for path in self.paths:
            request += multiheader_struct.pack(GetData.type, False, -1)
            request += _string(path) + b"\0"  # no watch: a server sets none in a batch
        request += multiheader_struct.pack(-1, True, -1)
        return request

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        while True:
            kind, is_end, _ = multiheader_struct.unpack_from(answer, offset)
            offset += multiheader_struct.size
            if is_end:
                return results
            (number,) = int_struct.unpack_from(answer, offset)
            offset += int_struct.size
            if kind == _ERROR:
                results.append(EXCEPTIONS[number]())
                continue
            end = offset + max(number, 0)  # -1: no data
            stat = ZnodeStat._make(stat_struct.unpack_from(answer, end))
            results.append((bytes(answer[offset:end]), stat))
            offset = end + stat_struct.size


@dataclass(slots=True, frozen=True)
class SetWatches:
    """Arms the watchers; kazoo has to know them before the request is sent, for some fire before the answer."""

    type: ClassVar = 101
    watchers: Mapping[str, Callable[..., None]]
    gone: Collection[str]
    """The paths among these at which no node is expected."""

    def serialize(self) -> bytearray:
        there = [path for path in self.watchers if path not in self.gone]
        no_children: list[str] = []
        request = bytearray(long_struct.pack(_NEVER))
        for paths in (there, self.gone, no_children):
            request += int_struct.pack(len(paths))
            for path in paths:
                request += _string(path)
        return request

    @classmethod
    def deserialize(cls, _answer: bytes, _offset: int) -> bool:
        return True


def _string(text: str) -> bytes:
    data = text.encode()
    return bytes(int_struct.pack(len(data))) + data
