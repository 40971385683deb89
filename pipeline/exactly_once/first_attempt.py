"""The identity under which the first attempt begins a batch.

It is that of the batch before, continued where that one ended, if all leaders agree. If one of them has forgotten
the producer, every partition begins at sequence 0 under the next epoch. Nothing is recorded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from echoless.client.sequencer import Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.leader_queries import LeaderQueries, LeaderState
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


def begin_batch(
    previous: PreviousBatch, leaders: LeaderQueries, targets: list[TopicPartition]
) -> Beginning | LeaderAhead:
    """Chooses the identity: asks the leaders of `targets` and of every partition written before.

    Raises `SinkError`.
    """
    identity = previous.identity
    if identity is None:
        identity = leaders.new_identity()
        return Beginning(identity, leaders.ask(targets, identity.producer_id))
    sequences = previous.sequences
    leader_states = leaders.ask(targets, identity.producer_id)
    # A partition that is gone or has no leader gives no answer: the next epoch begins without it.
    idle = [target for target in sequences if target not in leader_states]
    found = {**leader_states, **leaders.ask_once(idle, identity.producer_id)}
    for target, leader_state in found.items():
        if is_ahead(leader_state.found, identity, sequences.get(target, 0)):
            return LeaderAhead(target, identity.producer_id)
    is_known = len(found) == len(leader_states) + len(idle) and all(
        agrees(leader_state.found, identity, sequences.get(target, 0))
        for target, leader_state in found.items()
    )
    return Beginning(identity if is_known else leaders.next_identity(identity), leader_states)
