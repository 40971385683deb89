"""An Echoless that decides one thing wrongly, to prove that the comparison would see it.

`python -m tests.oracle.producers.broken_broker` is `python -m echoless.broker` with the decision changed that
the environment variable `BROKEN_DECISION` names.
"""

from __future__ import annotations

import dataclasses
import os
import runpy
from collections.abc import Callable
from typing import Any

from echoless.protocol import dedup

VARIABLE = "BROKEN_DECISION"


def _forget_the_window() -> None:
    """Recognises no repeat."""
    dedup.find_duplicate = lambda _entry, _header: None  # type: ignore[assignment]


def _forget_the_oldest() -> None:
    """Remembers one batch less than it should."""
    commit: Callable[..., dedup.ProducerEntry] = dedup.commit

    def shorter(*arguments: Any, **named: Any) -> dedup.ProducerEntry:
        entry = commit(*arguments, **named)
        return dataclasses.replace(entry, batches=entry.batches[-4:])

    dedup.commit = shorter


def _accept_gaps() -> None:
    """Takes any sequence for the next one."""
    dedup.follows = lambda _sequence, _last_sequence: True  # type: ignore[attr-defined, assignment]


def _accept_old_epochs() -> None:
    """Lets a fenced producer continue."""
    decide = dedup.decide

    def lenient(
        entry: dedup.ProducerEntry | None,
        header: dedup.BatchHeader,  # type: ignore[name-defined]
        rules: dedup.PartitionRules,
    ) -> dedup.Decision:
        if entry is not None and header.producer_epoch < entry.producer_epoch:
            return dedup.APPEND
        return decide(entry, header, rules)

    dedup.decide = lenient


BREAKS: dict[str, Callable[[], None]] = {
    "window": _forget_the_window,
    "oldest": _forget_the_oldest,
    "gaps": _accept_gaps,
    "epochs": _accept_old_epochs,
}

if __name__ == "__main__":
    BREAKS[os.environ[VARIABLE]]()  # before storage imports the decision by its names
    runpy.run_module("echoless.broker", run_name="__main__")
