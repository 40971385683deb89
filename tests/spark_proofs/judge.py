"""The fate of the source's records: lost, stored twice, out of order, elsewhere. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tests.spark_proofs.numbered_source import SOURCES, first_number, partitions_of, sources_of


class Fault(enum.StrEnum):
    """Faults that must never be found."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    OUT_OF_ORDER = "out of order within their source"
    MISPLACED = "in another partition than the source's"
    INVENTED = "stored and never in the source"


def judge(stored: Sequence[np.ndarray], records_per_source: int) -> Counter[Fault]:
    """Counts records. `stored`: by target partition, the numbers in offset order.

    A number counts as duplicated for each further copy; order is judged at its first occurrence.
    """
    counts: Counter[Fault] = Counter(dict.fromkeys(Fault, 0))
    everything = np.concatenate([*stored, np.empty(0, np.int64)])
    offsets = everything - first_number(1) * sources_of(everything)
    is_real = (offsets < records_per_source) & (sources_of(everything) < SOURCES)
    counts[Fault.INVENTED] = int(np.count_nonzero(~is_real))
    distinct = np.unique(everything[is_real])
    counts[Fault.DUPLICATED] = int(np.count_nonzero(is_real)) - len(distinct)
    counts[Fault.LOST] = SOURCES * records_per_source - len(distinct)
    for partition, numbers in enumerate(stored):
        counts[Fault.MISPLACED] += int(np.count_nonzero(partitions_of(numbers) != partition))
        counts[Fault.OUT_OF_ORDER] += sum(
            _late(numbers[sources_of(numbers) == source]) for source in range(SOURCES)
        )
    return counts


def _late(numbers: np.ndarray) -> int:
    """Numbers after a higher one, judged at their first occurrence."""
    _, firsts = np.unique(numbers, return_index=True)
    once = numbers[np.sort(firsts)]
    return int(np.count_nonzero(once < np.maximum.accumulate(once))) if len(once) else 0
