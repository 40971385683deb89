"""A batch with the sequences of a stored one and other bytes: is it a repeat, or are there two producers with one id?

The same records in another form are a repeat, and acknowledged. Other records are refused with UNKNOWN_PRODUCER_ID, for
an acknowledgement would lose them: the client may have been given an id that another one has used, by a coordinator
whose data was restored from an old copy (`docs/decisions/old-coordinator.md`), or it has used its numbers twice. Kafka's
clients answer 59 with a new epoch, and send the records again.

Invariant: a batch with other records is never acknowledged as the repeat of one that is whole in the log.

Many records are opened in a thread, as those of a batch that takes long to check. Made by `append.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from echoless.broker.records.in_flight import InFlightProduce, Unsettled
from echoless.protocol.dedup import Duplicate, OtherRecords
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import BatchHeader, Buffer, Codec, read_header
from echoless.protocol.record_check import FIELDS_AT_ONCE_BYTES
from echoless.protocol.same_records import have_same_records

Finish = Callable[[Duplicate | OtherRecords], Any]
"""Makes the outcome of the batch from what was decided."""


COMPARED_AT_ONCE_MAX: Final = 100
"""Limit on the records that are compared on the event loop: about 3 us for each of both batches."""


class RepeatComparison(Unsettled):
    """One batch that is compared with the stored one of its sequences."""

    __slots__ = ("_finish", "_flight", "_header", "_records", "_repeat", "_stored")

    def __init__(
        self,
        flight: InFlightProduce,
        records: Buffer,
        header: BatchHeader,
        repeat: Duplicate,
        *,
        stored: Buffer,
        finish: Finish,
    ) -> None:
        """`stored`: the bytes in the log; `finish` makes the outcome of the decision."""
        self._flight = flight
        self._records = records
        self._header = header
        self._repeat = repeat
        self._stored = stored
        self._finish = finish

    async def append(self) -> Any:
        """Compares in a thread; returns the outcome, for which nothing is appended."""
        flight = self._flight
        is_same = await flight.parts.thread.run(
            flight.request.peer.host, have_same_records, self._records, self._stored
        )
        return self._outcome(is_same=is_same)

    def outcome_at_once(self) -> Any:
        """Compares now what takes less than a millisecond; else the outcome comes later, and this is returned."""
        batches = (self._records, self._stored)
        is_quick = self._header.record_count <= COMPARED_AT_ONCE_MAX and all(
            len(one) <= FIELDS_AT_ONCE_BYTES and read_header(one).codec_id == Codec.NONE
            for one in batches
        )
        return self._outcome(is_same=have_same_records(*batches)) if is_quick else self

    def _outcome(self, *, is_same: bool) -> Any:
        header = self._header
        if is_same:
            return self._finish(self._repeat)
        reason = (
            f"sequences {header.base_sequence} to {header.last_sequence} are stored at offset "
            f"{self._repeat.original.base_offset} with other records: another producer has had this id, or "
            f"this one has used its sequences twice"
        )
        return self._finish(OtherRecords(ErrorCode.UNKNOWN_PRODUCER_ID, reason))
