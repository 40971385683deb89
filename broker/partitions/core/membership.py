"""The membership of a client's batch in a transaction, as the leader of its partition sees it (KIP-890).

The coordinator decides which partitions are in a transaction; the leader asks it before the first batch, and asks no more while
the transaction is open here:

    question_about(producers, header)      -> Question | None: None if the log can decide by itself
    judge(producers, header, question, number)   -> APPEND | ENDED | AGAIN | HELD_UP, in the step of the append

An answer takes time, and the marker of the transaction that it is about may arrive first: "yes" was true, and the batch would
open a transaction that no one will ever end. In the first generation of the protocol it may also be late for its own transaction
and in time for the next one, which has the same epoch: it would be committed with what its client sent after it. So an answer
counts only if the transaction that it names has not ended here. Nothing is kept between question and append but the last marker;
so nothing is lost when the leader changes, and nothing has to be forgotten.

| since the question | the batch |
|---|---|
| nothing | is appended |
| another batch has opened the transaction in the same epoch | is appended |
| the marker of the transaction that the coordinator has named, or of a later one | is of a transaction that has ended |
| the marker of an earlier one | is appended |
| a marker without a number; or the last marker was cut off or forgotten | is asked about again |
| (before it) the marker of the transaction that is named | is asked about again: the coordinator may have been replaced |
| (before it) a transaction in another epoch is open | waits: its marker is missing here, and would end both |

Invariant: a client's batch opens a transaction only if its coordinator has said yes since the last marker of its producer.
Invariant: a batch that was asked about is appended in the transaction that the coordinator has named, or not at all.

Pure.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol

from echoless.protocol.control_records import NO_NUMBER
from echoless.protocol.dedup import ProducerEntry
from echoless.protocol.marker_decision import LastMarker


class KnownProducers(Protocol):
    """The part of a partition's producer state that is looked at."""

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The entry of the id."""

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction."""

    def last_marker(self, producer_id: int) -> LastMarker | None:
        """The last marker of the producer."""


class OfProducer(Protocol):
    """A batch's header, or a request that a batch is made of: the part that is looked at."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...


class Question(NamedTuple):
    """The last that was known of a producer when its coordinator was asked."""

    last_marker: LastMarker | None


class Membership(enum.Enum):
    """The judgement about a batch whose coordinator has said yes."""

    APPEND = "append"
    ENDED = "ended"
    """Its transaction has ended here: its client sent it before that, and does not wait for it any more."""
    AGAIN = "again"
    """The coordinator has to be asked again: what it said may be of a transaction that has ended."""
    HELD_UP = "held up"
    """An earlier transaction of the producer is open here, which the coordinator takes for ended."""


def question_about(producers: KnownProducers, header: OfProducer) -> Question | None:
    """The question to ask before a transactional batch is appended; None if its transaction is open, or its epoch is old."""
    producer_id = header.producer_id
    entry = producers.get(producer_id)
    if entry is not None and (
        header.producer_epoch < entry.producer_epoch  # refused, whatever the coordinator says
        or (
            header.producer_epoch == entry.producer_epoch
            and producers.open_transaction(producer_id) is not None
        )
    ):
        return None
    return Question(producers.last_marker(producer_id))


def judge(
    producers: KnownProducers, header: OfProducer, question: Question, number: int
) -> Membership:
    """Judges a batch that is in the transaction with that number, says the coordinator, since `question` was asked."""
    producer_id = header.producer_id
    entry = producers.get(producer_id)
    if entry is not None and header.producer_epoch < entry.producer_epoch:
        return Membership.APPEND  # which the log refuses
    last = producers.last_marker(producer_id)
    if last is not None and NO_NUMBER < number <= last.number:
        return Membership.AGAIN if last == question.last_marker else Membership.ENDED
    is_open = producers.open_transaction(producer_id) is not None
    if is_open and entry is not None and entry.producer_epoch == header.producer_epoch:
        return Membership.APPEND
    if last != question.last_marker and not _is_of_earlier(last, question, number):
        return Membership.AGAIN
    return Membership.HELD_UP if is_open else Membership.APPEND


def _is_of_earlier(last: LastMarker | None, question: Question, number: int) -> bool:
    """Whether what has come since the question is the marker of a transaction before the one with this number."""
    before = question.last_marker
    known = NO_NUMBER if before is None else before.number
    return last is not None and known < last.number < number
