"""The producer in the state in which the batch before this one left it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from echoless.client.sequencer import Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import End


class PreviousBatch(NamedTuple):
    """Identity and next sequences at the end of a batch."""

    identity: Identity | None
    """Identity of its records; None: there was no batch, or it ended in another cluster."""
    sequences: Mapping[TopicPartition, int]

    def sequences_under(self, identity: Identity) -> Mapping[TopicPartition, int]:
        """Returns the next sequences under this identity; a partition without one begins at 0."""
        return self.sequences if identity == self.identity else {}


def previous_batch(end: End | None) -> PreviousBatch:
    """Returns the producer after `end`; None: no batch has ended in this cluster."""
    if end is None:
        return PreviousBatch(None, {})
    return PreviousBatch(
        Identity(end.state.producer_id, end.state.producer_epoch),
        {
            TopicPartition(one.topic, one.partition): one.next_sequence
            for one in end.state.partitions
        },
    )
