"""The ends of a batch's Spark partitions: the driver's step of `partition_writer.py`.

Only the driver knows which attempt of a task counts, so only the driver records an end. It does so before it
reports the batch to Spark as done. After a crash in between, the batch is rerun, finds all rows stored, and the
ends are recorded then.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from echoless.pipeline.exactly_once.entries import End
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.ledger import Ledger, TaskLocation
from echoless.pipeline.exactly_once.ledger_identity import open_files
from echoless.pipeline.exactly_once.options import SinkOptions
from echoless.pipeline.exactly_once.verification import mismatch

_PARALLEL_WRITES: Final = 8
"""Files written at once: remote file systems are slow."""


def record_ends(options: SinkOptions, ends: Iterable[tuple[TaskLocation, End]]) -> None:
    """Records the ends of one batch. Raises `SinkError`."""
    with ThreadPoolExecutor(_PARALLEL_WRITES) as threads:
        list(threads.map(lambda one: record_end(options, *one), ends))


def record_end(options: SinkOptions, location: TaskLocation, end: End) -> None:
    """Records one end. Raises `SinkError` if another attempt continued or ended with other rows."""
    ledger = Ledger(open_files(options), location)
    if ledger.end is None:
        identity = ledger.begins[-1].identity if ledger.begins else None
        if identity != (end.state.producer_id, end.state.producer_epoch):
            raise SinkError(f"{location}: another attempt continues under another identity")
        ledger.add(end)
    if ledger.end is None:
        raise SinkError(f"{location}: another attempt has continued")
    if (end.rows, end.targets) != (ledger.end.rows, ledger.end.targets):
        raise mismatch(location, "another attempt at the same time has ended with other rows")
    ledger.clean()
