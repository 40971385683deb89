"""The numbers with which the first attempt at a batch begins.

It continues where the batch before this one ended, if all leaders agree. If one of them has forgotten
the producer, everything begins at 0 under its next epoch. Nothing is recorded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from echoless.client.sequencer import Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.leaders import Leaders, Standing
from echoless.pipeline.exactly_once.previous_batch import PreviousBatch
from echoless.pipeline.exactly_once.stretches import agrees, is_ahead


class Beginning(NamedTuple):
    """The identity to send under, and where the logs of the targets end."""

    identity: Identity
    standings: Mapping[TopicPartition, Standing]


class LeaderAhead(NamedTuple):
    """A leader has more records than the batch before this one sent: this one was begun already."""

    target: TopicPartition
    producer_id: int


def begin_batch(
    previous: PreviousBatch, leaders: Leaders, targets: list[TopicPartition]
) -> Beginning | LeaderAhead:
    """Asks the leaders of `targets` and of every partition written before. Raises `SinkError`."""
    identity = previous.identity
    if identity is None:
        identity = leaders.new_identity()
        return Beginning(identity, leaders.ask(targets, identity.producer_id))
    sequences = previous.sequences
    standings = leaders.ask(targets, identity.producer_id)
    # One that is gone, or has no leader, is left out by the next epoch.
    idle = [target for target in sequences if target not in standings]
    found = {**standings, **leaders.ask_once(idle, identity.producer_id)}
    for target, standing in found.items():
        if is_ahead(standing.found, identity, sequences.get(target, 0)):
            return LeaderAhead(target, identity.producer_id)
    is_known = len(found) == len(standings) + len(idle) and all(
        agrees(standing.found, identity, sequences.get(target, 0))
        for target, standing in found.items()
    )
    return Beginning(identity if is_known else leaders.next_identity(identity), standings)
