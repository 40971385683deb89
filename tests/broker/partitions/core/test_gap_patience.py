"""When a leader calls a batch a gap, after it rejected others."""

from __future__ import annotations

import pytest

from echoless.broker.partitions.core.gap_patience import GAP_GRACE_S, PRODUCERS_MAX, GapPatience
from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.protocol.record_batch import BatchHeader, read_header
from echoless.protocol.sequence import SEQUENCE_MAX
from tests.storage.log_workload import make_batch
from tests.storage.one_log import NOW_MS

SINCE = 100


def batch(sequence: int, *, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return read_header(
        make_batch(
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequence,
            count=1,
            size=20,
            timestamp=NOW_MS,
        )
    )


def stored(last_sequence: int, last_offset: int = SINCE - 1) -> ProducerEntry:
    """The entry of a producer whose newest batch is at this offset."""
    newest = BatchMetadata(last_sequence, last_offset, 0, NOW_MS, None)
    return ProducerEntry(0, 0, NOW_MS, (newest,))


@pytest.mark.parametrize(
    ("entry", "header"),
    [
        (stored(4), batch(6)),
        (stored(4), batch(1, epoch=1)),  # a new epoch, whose first batch was before this one
        (None, batch(1)),  # a new producer
        (ProducerEntry(0, -1, NOW_MS, ()), batch(1)),
        (stored(SEQUENCE_MAX), batch(1)),  # across the wrap-around
    ],
    ids=["sequence", "epoch", "producer", "marker only", "wrap-around"],
)
def test_the_first_gap_of_a_producer_has_its_time(
    entry: ProducerEntry | None, header: BatchHeader
) -> None:
    """The missing batches may be in transit; after a few seconds they are not."""
    patience = GapPatience(SINCE)
    assert patience.may_be_on_its_way(entry, header, 50.0)
    assert patience.may_be_on_its_way(entry, header, 50.0 + 0.99 * GAP_GRACE_S)
    assert not patience.may_be_on_its_way(entry, header, 50.0 + GAP_GRACE_S)


def test_a_producer_of_which_a_batch_was_stored_since_is_in_order_again() -> None:
    """From then on its batches come one after the other, and a gap is a gap."""
    patience = GapPatience(SINCE)
    assert not patience.may_be_on_its_way(stored(4, SINCE), batch(6), 50.0)


@pytest.mark.parametrize("sequence", [0, 4])
def test_an_overlap_is_wrong_at_once(sequence: int) -> None:
    """Whatever else comes, sequences that are stored already never follow."""
    assert not GapPatience(SINCE).may_be_on_its_way(stored(4), batch(sequence), 50.0)


def test_each_producer_has_its_own_time() -> None:
    """One that finds the new leader late has as much of it."""
    patience = GapPatience(SINCE)
    assert patience.may_be_on_its_way(None, batch(1), 0.0)
    assert not patience.may_be_on_its_way(None, batch(1), 10.0)
    assert patience.may_be_on_its_way(None, batch(1, producer_id=8), 10.0)


def test_what_is_remembered_is_bounded() -> None:
    """Made-up producer ids cost no memory without end; who is forgotten gets time, never a 45."""
    patience = GapPatience(SINCE)
    header = batch(1)
    for producer_id in range(PRODUCERS_MAX + 5):
        patience.may_be_on_its_way(None, header._replace(producer_id=producer_id), 0.0)
    assert len(patience._first_gap_s) == PRODUCERS_MAX
    assert patience.may_be_on_its_way(None, header._replace(producer_id=0), 10.0)
