"""The model by itself, row by row of `docs/protocol/deduplication.md` and the named differences."""

from __future__ import annotations

import pytest

from tests.oracle.producers.reference import (
    APPEND,
    DUPLICATE,
    KAFKA,
    OLD_EPOCH,
    OUT_OF_ORDER,
    SEQUENCES,
    UNKNOWN_PRODUCER,
    Facts,
    Partition,
    Rules,
    Verdict,
    echoless_rules,
)

ECHOLESS = echoless_rules()


def _batch(sequence: int, *, epoch: int = 0, count: int = 1, producer_id: int = 7) -> Facts:
    return Facts(producer_id, epoch, sequence, count, 1000)


def _partition(rules: Rules, *batches: Facts) -> Partition:
    partition = Partition(rules)
    for batch in batches:
        partition.append(batch, b"", batch.timestamp)
    return partition


@pytest.mark.parametrize("rules", [KAFKA, ECHOLESS])
@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (_batch(8), 0),
        (_batch(9), OUT_OF_ORDER),
        (_batch(6, count=3), OUT_OF_ORDER),
        (_batch(0, epoch=1), 0),
        (_batch(1, epoch=1), OUT_OF_ORDER),
        (_batch(8, epoch=-1), OLD_EPOCH),
        (_batch(0, producer_id=8), 0),
        (_batch(5, producer_id=-1), 0),
    ],
)
def test_both_rules_agree_on(rules: Rules, batch: Facts, error: int) -> None:
    """After sequences 0 to 7 one by one, both brokers say the same to these."""
    partition = _partition(rules, *(_batch(sequence) for sequence in range(8)))
    assert partition.decide(batch) == Verdict(error)


def test_the_window_holds_five_batches() -> None:
    """The fifth newest is a repeat with its first offset, the sixth is 45 or, if proven, 46."""
    batches = [_batch(sequence) for sequence in range(8)]
    for rules, error in ((KAFKA, OUT_OF_ORDER), (ECHOLESS, DUPLICATE)):
        partition = _partition(rules, *batches)
        original = partition.decide(_batch(3)).original
        assert original is not None
        assert original.base_offset == 3
        assert partition.decide(_batch(2)) == Verdict(error)


def test_an_unknown_id_may_start_anywhere_for_kafka_alone() -> None:
    """Echoless says 45 on a virgin partition and 59 on a used one, or accepts both if configured to."""
    other, late = _batch(0, producer_id=8), _batch(5)
    assert _partition(KAFKA).decide(late) == APPEND
    assert _partition(ECHOLESS).decide(late) == Verdict(OUT_OF_ORDER)
    assert _partition(ECHOLESS, other).decide(late) == Verdict(UNKNOWN_PRODUCER)
    accepting = echoless_rules(accepts_unknown=True)
    assert _partition(accepting).decide(late) == APPEND
    assert _partition(accepting, other).decide(late) == APPEND


def test_sequences_wrap() -> None:
    """After 2**31 - 1 comes 0, and what was stored before the wrap is proven no more."""
    partition = _partition(ECHOLESS, _batch(SEQUENCES - 2, count=2))
    assert partition.decide(_batch(0)) == APPEND
    assert partition.decide(_batch(1)) == Verdict(OUT_OF_ORDER)
    partition.append(_batch(0), b"", 1000)
    partition.append(_batch(1, count=9), b"", 1000)
    assert partition.decide(_batch(0, count=2)) == Verdict(DUPLICATE)
    assert partition.decide(_batch(SEQUENCES - 1)) == Verdict(OUT_OF_ORDER)


def test_a_restart_leaves_kafka_one_batch() -> None:
    """Kafka's snapshots hold the newest batch of a producer, Echoless' hold the window."""
    for rules, kept in ((KAFKA, 1), (ECHOLESS, 5)):
        partition = _partition(rules, *(_batch(sequence) for sequence in range(8)))
        partition.restart(1000, 1000, lost_snapshots=False)
        assert len(partition.entries[7].window) == kept


@pytest.mark.parametrize(("now_ms", "lost_snapshots"), [(2000, False), (1000, True)])
def test_only_kafka_forgets_over_a_restart(now_ms: int, lost_snapshots: bool) -> None:
    """Old records, or lost snapshot files, make Kafka forget a producer."""
    for rules, known in ((KAFKA, set()), (ECHOLESS, {7})):
        partition = _partition(rules, _batch(0))
        partition.restart(now_ms, 1000, lost_snapshots=lost_snapshots)
        assert set(partition.entries) == known
