"""Records how the Spark partitions of a batch ended: the driver's part of `partition_writer.py`.

Only the driver knows which attempt of a task counts, so only it may say that a Spark partition is
done. It does so before it reports the batch to Spark as done. After a crash in between, the batch
is rerun, finds all rows stored, and the end is recorded then.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from echoless.pipeline.exactly_once.entries import End
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.ledger import Ledger, Place
from echoless.pipeline.exactly_once.ledger_identity import open_files
from echoless.pipeline.exactly_once.options import SinkOptions
from echoless.pipeline.exactly_once.verification import mismatch

_AT_ONCE: Final = 8
"""Files written in parallel: remote file systems are slow."""


def put_ends(options: SinkOptions, ends: Iterable[tuple[Place, End]]) -> None:
    """Records the ends of one batch. Raises `SinkError`."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(lambda one: put_end(options, *one), ends))


def put_end(options: SinkOptions, place: Place, end: End) -> None:
    """Records one end. Raises `SinkError` if another attempt continued or ended with other rows."""
    ledger = Ledger(open_files(options), place)
    if ledger.end is None:
        numbers = ledger.begins[-1].identity if ledger.begins else None
        if numbers != (end.state.producer_id, end.state.producer_epoch):
            raise SinkError(f"{place}: another attempt continues under other numbers")
        ledger.add(end)
    if ledger.end is None:
        raise SinkError(f"{place}: another attempt has continued")
    if (end.rows, end.targets) != (ledger.end.rows, ledger.end.targets):
        raise mismatch(place, "another attempt at the same time has ended with other rows")
    ledger.clean()
