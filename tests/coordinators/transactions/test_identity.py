"""Identities grow, and the highest epoch is never a client's."""

from __future__ import annotations

import pytest

from echoless.coordinators.transactions.identity import (
    EPOCH_MAX,
    ProducerIdentity,
    fencing_epoch,
    next_identity,
)


@pytest.mark.parametrize(
    ("epoch", "following"),
    [(0, (7, 1)), (32_764, (7, 32_765)), (32_765, (7, 32_766)), (32_766, (8, 0)), (32_767, (8, 0))],
)
def test_the_identity_after(epoch: int, following: tuple[int, int]):
    """32766 is the last epoch of a producer id; 32767 may stand in a log of Kafka's."""
    assert next_identity(ProducerIdentity(7, epoch), 8) == following


@pytest.mark.parametrize("epoch", [32_766, 32_767])
def test_without_a_spare_producer_id_there_is_none(epoch: int):
    """The client asks again."""
    assert next_identity(ProducerIdentity(7, epoch), None) is None


@pytest.mark.parametrize(("epoch", "raised"), [(0, 1), (32_766, EPOCH_MAX), (32_767, EPOCH_MAX)])
def test_the_epoch_of_a_fence(epoch: int, raised: int):
    """It never overflows."""
    assert fencing_epoch(epoch) == raised
