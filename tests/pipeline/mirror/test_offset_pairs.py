"""Translated offsets: nothing is lost by them, and little is read again."""

from __future__ import annotations

import random

import pytest

from echoless.pipeline.mirror.offset_pairs import TEXT_MAX, OffsetPair, OffsetPairs


def mirrored(seed: int, *, batches: int = 400) -> tuple[OffsetPairs, list[tuple[int, int]]]:
    """Pairs after many batches, and each record's offsets in source and target; others write to the target, too."""
    rng = random.Random(seed)
    source = target = 0
    pairs, records = OffsetPairs(), []
    for _ in range(batches):
        for _ in range(rng.randint(1, 30)):
            source += rng.choice((0, 0, 0, 1, 7))  # markers, and what compaction has removed
            target += rng.choice((0, 0, 0, 0, 2))  # of others
            records.append((source, target))
            source, target = source + 1, target + 1
        pairs = pairs.with_pair(OffsetPair(source, target))
    return pairs, records


@pytest.mark.parametrize("seed", range(5))
def test_a_consumer_that_fails_over_loses_nothing_and_reads_little_again(seed: int):
    """Everything below the translated offset was below the committed one; about as much is read again as it lags behind."""
    pairs, records = mirrored(seed)
    end, batch = records[-1][0] + 1, 31 * 8
    rng = random.Random(seed)
    for committed in [rng.randrange(end + 1) for _ in range(300)]:
        translated = pairs.translate(committed)
        if translated is None:
            assert committed < pairs.pairs[-1].source
            continue
        lost = [one for one in records if one[0] >= committed and one[1] < translated]
        assert lost == []
        again = [one for one in records if one[0] < committed and one[1] >= translated]
        assert len(again) <= 0.5 * (end - committed) + batch
    assert pairs.translate(end) == records[-1][1] + 1, (
        "one that has read everything reads nothing again"
    )


@pytest.mark.parametrize("seed", range(3))
def test_stored_pairs_are_read_back(seed: int):
    """As metadata of a commit, bounded, with the newest pairs first."""
    pairs, _ = mirrored(seed)
    text = pairs.to_text()
    assert len(text) <= TEXT_MAX
    assert OffsetPairs.from_text(text) == pairs
    long = OffsetPairs(
        tuple(OffsetPair(10**15 - 10**6 * n, 10**15 - 10**6 * n) for n in range(400))
    )
    stored = OffsetPairs.from_text(long.to_text())
    assert stored.pairs == long.pairs[: len(stored.pairs)]
    assert 50 < len(stored.pairs) < 400
    for foreign in ("", "copier state", "1:2,x", "5:-9,1:1"):
        assert OffsetPairs.from_text(foreign) == OffsetPairs()


def test_a_pair_that_is_not_ahead_changes_nothing():
    """A batch that is run again, or a target that was cut."""
    pairs = OffsetPairs().with_pair(OffsetPair(10, 8))
    assert pairs.with_pair(OffsetPair(10, 12)) == pairs
    assert pairs.with_pair(OffsetPair(12, 7)) == pairs
    assert pairs.translate(9) is None
