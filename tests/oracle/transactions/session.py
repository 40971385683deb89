"""A session of a transactional id, as far as its client knows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tests.oracle.messages import Plain
from tests.oracle.transactions.answers import first_code
from tests.oracle.transactions.step import NOBODY, Request

_FENCED: Final = frozenset({47, 90})
_LOST: Final = frozenset({48, 49, 120})
"""Codes after which a client gives its transaction up."""
_RAISES_EPOCH_FROM: Final = 5


@dataclass(slots=True, kw_only=True)
class Session:
    """An instance of a transactional id, as far as it knows its state."""

    name: str
    id: str
    generation: int
    """The generation of the protocol: 1 or 2."""
    connection: int
    producer: str = ""
    """The label of its producer id; "" before it has one."""
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)
    added: set[int] = field(default_factory=set)
    is_open: bool = False
    must_end: bool = False
    is_fenced: bool = False
    asked: list[Request] = field(default_factory=list)

    @property
    def identity(self) -> dict[str, Plain]:
        return {"producer_id": self.producer or NOBODY, "producer_epoch": self.epoch}

    def begin(self, producer: str, epoch: int) -> None:
        """Goes on with an identity."""
        if (producer, epoch) != (self.producer, self.epoch):
            self.sequences = {}
        self.producer, self.epoch = producer, epoch
        self.close()

    def close(self) -> None:
        """Has no transaction any more."""
        self.added, self.is_open, self.must_end = set(), False, False

    def learn(self, step: Request, answer: Any) -> None:
        """Takes the answer to a request of its own."""
        code = first_code(step, answer)
        self.is_fenced |= code in _FENCED
        self.must_end |= code in _LOST
        if code:
            return
        match step.api:
            case "init_producer_id":
                self.begin(answer["producer_id"], answer["producer_epoch"])
            case "end_txn":
                self.close()
                if step.version >= _RAISES_EPOCH_FROM:
                    self.begin(answer["producer_id"], answer["producer_epoch"])
            case _:
                self._join(step)

    def _join(self, step: Request) -> None:
        """Has a transaction, with what was added or written."""
        self.is_open = True
        for topic in step.values.get("v3_and_below_topics", ()):
            self.added.update(topic["partitions"])
        for row in step.values.get("rows", ()):
            self.sequences[row["partition"]] = row["sequence"] + row["count"]
