"""The steps and actions of a `Sequencer`, and the reports of its owner. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from echoless.client.answers import PartitionProduceResponse
from echoless.client.sequenced_batch import BatchAcknowledged, Identity, SequencedBatch


@dataclass(slots=True, frozen=True, kw_only=True)
class Start:
    """The start of a partition. `is_resumed`: an earlier run may have sent from here."""

    identity: Identity
    next_sequence: int = 0
    is_resumed: bool = False
    asks: bool = False
    """Whether to ask for the leader's last sequence before anything is sent."""
    is_unnamed: bool = False
    """Whether the resumed state names other topics only, so that records stored here are not its
    own.
    """


class AfterFailure(enum.StrEnum):
    """The reaction of a partition to a batch that has failed for good."""

    STOP = "stop"
    """Nothing more is sent: a later run resumes at the failed record, under the same numbers."""
    NEW_EPOCH = "new_epoch"
    """Later records continue under a new epoch, without the failed ones."""


class Failure(enum.Enum):
    """Why a batch failed for good; the value says it in words."""

    REFUSED = "the broker refused it"
    TIMED_OUT = "it was not acknowledged in time"
    LEASE_OVER = "the lease of its producer id is over, and brokers may forget the id"
    FENCED = "a newer epoch of this producer id is in use"
    RECORDS_LOST = "the partition has lost records of this producer that were acknowledged"
    FORGOTTEN = "the partition does not know this producer any more"
    UNNAMED_TOPIC = (
        "the state that was resumed names other topics only, and this one holds records of its "
        "producer: it is another program's state, or older than the first record here (then "
        "resumes_unnamed_topics=True takes those for the records that are sent now)"
    )
    UNANSWERED = "the leader does not report its last sequence"
    STOPPED = "an earlier batch of the partition has failed"


class Failed(NamedTuple):
    batch: SequencedBatch
    failure: Failure
    answer: PartitionProduceResponse | None
    may_be_stored: bool


class Divided(NamedTuple):
    """`batch` is replaced by `parts`, whose payloads the owner fills from it."""

    batch: SequencedBatch
    parts: tuple[SequencedBatch, SequencedBatch]


class Renumbered(NamedTuple):
    """The batch has new numbers: bytes built with the old ones are worthless."""

    batch: SequencedBatch


class BackOff(NamedTuple):
    """Wait some time before the next step; `elsewhere`: find out who leads."""

    elsewhere: bool


Action = BatchAcknowledged | Failed | Divided | Renumbered | BackOff


class Send(NamedTuple):
    batch: SequencedBatch


class Ask(NamedTuple):
    """Ask the leader for the entry of `identity.producer_id`."""

    identity: Identity


class NewId(NamedTuple):
    """Get a new producer id."""


Step = Send | Ask | NewId


class LeaderEntry(NamedTuple):
    """The leader's entry for the producer id on this partition."""

    producer_epoch: int
    last_sequence: int
    """-1: no batch of this epoch."""
