"""The batches of a fetch whose records a consumer hands out: neither markers, nor batches of aborted transactions.

The broker sends logs as they are stored, and names the aborted transactions that may have batches in what it returns. Which
transaction a batch belongs to follows from its place (as in Kafka's consumer):

* an aborted transaction of a producer begins at its first offset, and ends with the producer's next ABORT marker;
* batches of the producer between the two that have the transactional bit are not handed out.

Markers are handed out to no one, whatever the isolation level. For all other records `aborted` is empty.

Invariant: a reader of committed records gets no record of an aborted transaction, and every other one.

Pure; called by `broker/native/fetch.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter

from echoless.protocol.control_records import MarkerType, read_marker
from echoless.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, walk


def data_batches(
    batches: memoryview, aborted: Iterable[tuple[int, int]] = ()
) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of the batches to hand out, of whole batches in the order of their offsets.

    `aborted`: producer id and first offset, in any order. Raises `DecodeError` for a marker that cannot be read.
    """
    to_come = sorted(aborted, key=itemgetter(1), reverse=True)
    ending: set[int] = set()
    """Producers whose transaction at this place was aborted."""
    for position, header in walk(batches):
        while to_come and to_come[-1][1] <= header.last_offset:
            ending.add(to_come.pop()[0])
        attributes = header.attributes
        if attributes & CONTROL_BIT:
            if header.producer_id in ending:
                marker = read_marker(batches[position : position + header.size])
                if marker is not None and marker.type is MarkerType.ABORT:
                    ending.remove(header.producer_id)
        elif not (attributes & TRANSACTIONAL_BIT and header.producer_id in ending):
            yield position, header
