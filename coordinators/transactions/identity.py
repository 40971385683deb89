"""The identities of a session, producer id and epoch, and the one that follows when epochs run out.

Epoch 32767 is never given to a client: markers that fence a session of epoch 32766 carry it. So 32766 is the last of a
producer id, and the next identity is a new id with epoch 0.
"""

from __future__ import annotations

from typing import Final, NamedTuple

EPOCH_MAX: Final = 32_767


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


def is_exhausted(epoch: int) -> bool:
    """Whether no epoch after this one may be given to a client."""
    return epoch >= EPOCH_MAX - 1


def fencing_epoch(epoch: int) -> int:
    """The epoch that ends a session of this one. A log of Kafka may already hold the highest; it stays."""
    return min(epoch + 1, EPOCH_MAX)


def next_identity(current: ProducerIdentity, spare: int | None) -> ProducerIdentity | None:
    """The identity after this one; None if it needs a new producer id, and there is no spare one."""
    if not is_exhausted(current.producer_epoch):
        return ProducerIdentity(current.producer_id, current.producer_epoch + 1)
    return None if spare is None else ProducerIdentity(spare, 0)
