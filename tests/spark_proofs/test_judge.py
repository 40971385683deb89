"""The judge finds every kind of fault, and nothing in a sound target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.spark_proofs.judge import Fault, judge
from tests.spark_proofs.numbered_source import (
    PARTITIONS,
    SOURCES,
    batches_of_files,
    first_number,
)

ROWS = 2
"""Rows of a file."""
RECORDS = 3 * ROWS
"""Records of each source."""


def _sound() -> list[list[int]]:
    numbers = [first_number(s) + n for n in range(RECORDS) for s in range(SOURCES)]
    return [[n for n in numbers if n % PARTITIONS == p] for p in range(PARTITIONS)]


def _found(stored: list[list[int]], batches: Sequence[int] = (0, 1, 2)) -> dict[Fault, int]:
    counts = judge([np.array(part, np.int64) for part in stored], np.array(batches), ROWS)
    return {fault: count for fault, count in counts.items() if count}


def test_a_sound_target_is_acquitted() -> None:
    """Each record once, those of a source ascending, in the partition that the source chose."""
    assert _found(_sound()) == {}


def test_a_missing_record_is_lost() -> None:
    """It may be the last one, one in the middle, or all of a partition."""
    stored = _sound()
    del stored[0][2]
    assert _found(stored) == {Fault.LOST: 1}
    stored[1] = []
    assert _found(stored) == {Fault.LOST: 1 + SOURCES * RECORDS // PARTITIONS}


def test_each_further_copy_is_a_duplicate_and_not_out_of_order() -> None:
    """A batch that is written again comes after later records, and counts once for each."""
    stored = _sound()
    stored[1] += stored[1][:3] + stored[1][:1]
    assert _found(stored) == {Fault.DUPLICATED: 4}


def test_a_record_behind_a_later_one_of_its_source_is_out_of_order() -> None:
    """Sources may interleave freely."""
    stored = _sound()
    mixed = [sorted(part) for part in stored]
    assert _found(mixed) == {}
    source_0 = [n for n in stored[0] if n < first_number(1)]
    rest = [n for n in stored[0] if n >= first_number(1)]
    stored[0] = rest + source_0[::-1]
    assert _found(stored) == {Fault.OUT_OF_ORDER: 1}


def test_two_files_in_one_batch_may_interleave() -> None:
    """Their tasks run at once; files of other batches, and the rows of each, keep their order."""
    numbers = range(0, RECORDS * PARTITIONS, PARTITIONS)
    files = [list(numbers)[first : first + 3] for first in range(0, RECORDS, 3)]

    def found(order: list[int], batches: Sequence[int]) -> int:
        counts = judge([np.array(order, np.int64)], np.array(batches), 3 * PARTITIONS)
        return counts[Fault.OUT_OF_ORDER]

    swapped = files[1] + files[0]
    assert found(swapped, [0, 0]) == 0
    assert found(swapped, [0, 1]) == 3
    assert found([files[1][0], *files[0], *files[1][1:]], [0, 0]) == 0
    assert found(files[1][::-1] + files[0], [0, 0]) == 2


def test_the_checkpoint_says_which_batch_took_a_file(tmp_path: Path) -> None:
    """Spark's file source had noted two entries when the second batch began."""
    (tmp_path / "offsets").mkdir()
    for batch, end in enumerate((0, 2, 3)):
        text = f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{{"logOffset":{end}}}'
        (tmp_path / "offsets" / str(batch)).write_text(text)
    (tmp_path / "offsets" / ".0.crc").touch()
    assert batches_of_files(tmp_path, 4).tolist() == [0, 1, 1, 2]


def test_a_record_elsewhere_or_from_nowhere_is_found() -> None:
    """It is in a partition that is not its own, or has a number that no source has."""
    stored = _sound()
    stored[2].append(stored[0].pop())
    assert _found(stored)[Fault.MISPLACED] == 1
    nowhere = first_number(0) + RECORDS
    stored = _sound()
    stored[nowhere % PARTITIONS].append(nowhere)
    assert _found(stored) == {Fault.INVENTED: 1}
