"""The identity under which the first attempt begins a batch.

It is that of the batch before, continued where that one ended, if all leaders agree. If one of them has forgotten
the producer, every partition begins at sequence 0 under the next epoch. Nothing is recorded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from echoless.client.sequencer import Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.leader_queries import LeaderQueries, LeaderState
from echoless.pipeline.exactly_once.ledger import TaskLocation
from echoless.pipeline.exactly_once.previous_batch import PreviousBatch
from echoless.pipeline.exactly_once.sequence_ranges import agrees, is_ahead


class Beginning(NamedTuple):
    """The identity to send under, and the leaders' answers about the targets."""

    identity: Identity
    leader_states: Mapping[TopicPartition, LeaderState]


class LeaderAhead(NamedTuple):
    """A leader with more records than the batch before sent: this batch was begun already."""

    target: TopicPartition
    producer_id: int

    def error(self, location: TaskLocation) -> SinkError:
        """Makes the error of a batch that no entry of the ledger accounts for."""
        return SinkError(
            f"{location}: {self.target} has more records of producer "
            f"{self.producer_id} than the ledger: the ledger is an old copy, or an attempt "
            "with other rows ran at the same time as the last one. Check what is stored "
            "there, and continue under another name"
        )


def begin_batch(
    previous: PreviousBatch, leaders: LeaderQueries, targets: list[TopicPartition]
) -> Beginning | LeaderAhead:
    """Chooses the identity: asks the leaders of `targets` and of every partition written before.

    Raises `SinkError`.
    """
    identity = previous.identity
    if identity is None:
        return _begin_anew(leaders.new_identity(), leaders, targets)
    sequences = previous.sequences
    idle = list(sequences.keys() - set(targets))
    # A partition that is gone or has no leader gives no answer: the next epoch begins without it.
    found = leaders.ask_beforehand(targets, idle, identity.producer_id)
    ahead = leader_ahead(found, identity, sequences)
    if ahead is not None:
        return ahead
    is_known = len(found) == len(targets) + len(idle) and all(
        agrees(leader_state.found, identity, sequences.get(target, 0))
        for target, leader_state in found.items()
    )
    return Beginning(
        identity if is_known else leaders.next_identity(identity),
        {target: found[target] for target in targets},
    )


def extend_batch(
    previous: PreviousBatch,
    leaders: LeaderQueries,
    identity: Identity,
    targets: list[TopicPartition],
) -> Beginning | LeaderAhead:
    """Adds targets to a batch that was begun under `identity`. Raises `SinkError`."""
    if identity != previous.identity:
        return _begin_anew(identity, leaders, targets)
    found = leaders.ask_beforehand(targets, [], identity.producer_id)
    return leader_ahead(found, identity, previous.sequences) or Beginning(identity, found)


def _begin_anew(
    identity: Identity, leaders: LeaderQueries, targets: list[TopicPartition]
) -> Beginning:
    """Begins at sequence 0, where leaders have nothing to agree with."""
    ends = leaders.log_ends(targets)
    return Beginning(identity, {target: LeaderState(end, None) for target, end in ends.items()})


def leader_ahead(
    found: Mapping[TopicPartition, LeaderState],
    identity: Identity,
    sequences: Mapping[TopicPartition, int],
) -> LeaderAhead | None:
    """Returns the first leader that has more records of the producer than its next sequences say; None: none has."""
    for target, leader_state in found.items():
        if is_ahead(leader_state.found, identity, sequences.get(target, 0)):
            return LeaderAhead(target, identity.producer_id)
    return None
