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


def judge(stored: Sequence[np.ndarray], batches_of_files: np.ndarray, rows: int) -> Counter[Fault]:
    """Counts records. `stored`: by target partition, the numbers in offset order.

    `batches_of_files`: for each of a source's files of `rows` rows, the query's batch that read it.
    A number counts as duplicated for each further copy; order is judged at its first occurrence, and
    only as far as it is promised: within a file, and between files of different batches.
    """
    records_per_source = len(batches_of_files) * rows
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
        for source in range(SOURCES):
            own = numbers[sources_of(numbers) == source] - first_number(source)
            own = own[own < records_per_source]
            counts[Fault.OUT_OF_ORDER] += _late(own, batches_of_files, rows)
    return counts


def _late(numbers: np.ndarray, batches_of_files: np.ndarray, rows: int) -> int:
    """Counts numbers after one of a later batch, or after a higher one of their file."""
    _, firsts = np.unique(numbers, return_index=True)
    once = numbers[np.sort(firsts)]
    files = once // rows
    batches = batches_of_files[files]
    is_late = _descends(batches)
    for file in np.unique(files):
        is_late[files == file] |= _descends(once[files == file])
    return int(np.count_nonzero(is_late))


def _descends(values: np.ndarray) -> np.ndarray:
    """Marks each value that comes after a higher one."""
    return values < np.maximum.accumulate(values) if len(values) else np.zeros(0, np.bool_)
