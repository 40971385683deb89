"""The effect of a stored batch on the producer state of its partition.

| batch with a producer id | effect |
|---|---|
| with a sequence | its producer remembers it |
| the same, transactional | and it opens a transaction, or is one more batch of an open one |
| transactional, without a sequence | opens a transaction, or is one more batch of it: offsets committed within it |
| control, with a marker | ends the transaction; the producer takes the marker's epoch |
| control, without one (emptied by compaction, of an unknown type) | none |
| without a sequence, neither of the two | none |

A batch without a producer id has none. Leader, follower, recovery, truncation and `echoless verify` ask here,
so that a log means the same to all of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from echoless.protocol.control_records import EndMarker, read_marker
from echoless.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, Buffer


class ProducerEffect(NamedTuple):
    """The changes that a batch makes to its producer's state."""

    remembers_sequence: bool
    opens: bool
    """Whether a transaction is open after the batch."""
    end: EndMarker | None
    """The marker, if the batch ends a transaction."""


_new: Final = tuple.__new__
"""Makes a named tuple in half the time of calling its class; see `protocol/known/__init__.py`."""
NO_EFFECT: Final = ProducerEffect(False, False, None)
_SEQUENCE: Final = ProducerEffect(True, False, None)
_TRANSACTIONAL_SEQUENCE: Final = ProducerEffect(True, True, None)
_TRANSACTIONAL: Final = ProducerEffect(False, True, None)


def marker_in(header: BatchHeader, batch: Buffer) -> EndMarker | None:
    """The marker of a whole batch; reads the records of control batches alone.

    Raises `DecodeError` if those cannot be read.
    """
    return read_marker(batch) if header.attributes & CONTROL_BIT else None


def effect_of(header: BatchHeader, marker: EndMarker | None) -> ProducerEffect:
    """The effect of a batch, whose `marker_in` is `marker`."""
    attributes = header.attributes
    if header.producer_id < 0:
        return NO_EFFECT
    if attributes & CONTROL_BIT:
        return NO_EFFECT if marker is None else _new(ProducerEffect, (False, False, marker))
    if attributes & TRANSACTIONAL_BIT:
        return _TRANSACTIONAL_SEQUENCE if header.base_sequence >= 0 else _TRANSACTIONAL
    return _SEQUENCE if header.base_sequence >= 0 else NO_EFFECT
