"""Short names for batches: A, B, C ... in order of first appearance."""

from __future__ import annotations

from typing import Final

from echoless.diagram.steps import NumberedBatch, WindowEntry

NO_LETTER: Final = "\N{BULLET}"
_ALPHABET: Final = 26

_Numbers = tuple[str, int, int, int, int]
"""Topic, partition, producer id, first and last sequence: a batch without its epoch."""


class Letters:
    """Gives each batch its letter, counts its attempts, and recognises it in windows."""

    def __init__(self) -> None:
        self._by_batch: dict[NumberedBatch, str] = {}
        self._attempts: dict[NumberedBatch, int] = {}
        self._stored: dict[_Numbers, str] = {}

    def of(self, batch: NumberedBatch) -> str:
        """Its letter; a new one if it has none yet. A new epoch makes it another batch.

        A batch without a producer id cannot be recognised: it gets no letter.
        """
        if batch.producer_id < 0:
            return NO_LETTER
        return self._by_batch.setdefault(batch, _letter(len(self._by_batch)))

    def next_attempt(self, batch: NumberedBatch) -> int:
        """The number of times it has been sent, this one included."""
        if batch.producer_id < 0:
            return 1
        self._attempts[batch] = attempt = self._attempts.get(batch, 0) + 1
        return attempt

    def store(self, batch: NumberedBatch) -> None:
        """Notes that it has been appended, so that windows refer to it."""
        self._stored[_numbers(batch, batch.base_sequence, batch.last_sequence)] = self.of(batch)

    def remembered(self, batch: NumberedBatch, sequences: tuple[int, int]) -> WindowEntry:
        """An item of the window against which `batch` was judged."""
        return WindowEntry(self._stored.get(_numbers(batch, *sequences), ""), *sequences)


def _numbers(batch: NumberedBatch, base_sequence: int, last_sequence: int) -> _Numbers:
    return batch.topic, batch.partition, batch.producer_id, base_sequence, last_sequence


def _letter(index: int) -> str:
    """A to Z, then AA, AB, ..."""
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, _ALPHABET)
        text = chr(ord("A") + rest) + text
    return text
