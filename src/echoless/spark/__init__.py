"""Spark: a sink that stores each row once, a reader of batch headers, and the session that both run in.

Needs the extra `spark` (PySpark, numpy, pyarrow). A name is imported when it is first used. The jobs are
`python -m echoless.spark audit|mirror|ingest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless import imported_on_use

if TYPE_CHECKING:
    from echoless.pipeline.batches.batch_source import BatchSource
    from echoless.pipeline.exactly_once.batch_metrics import BatchMetrics
    from echoless.pipeline.exactly_once.data_source import register
    from echoless.pipeline.exactly_once.errors import (
        LedgerError,
        OptionError,
        ReplayMismatchError,
        RowError,
        SinkError,
    )
    from echoless.pipeline.exactly_once.ledger_metrics import read_metrics
    from echoless.pipeline.exactly_once.partition_writer import Written
    from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
    from echoless.pipeline.session import open_session

__all__ = [
    "BatchMetrics",
    "BatchSource",
    "ExactlyOnceSink",
    "LedgerError",
    "OptionError",
    "ReplayMismatchError",
    "RowError",
    "SinkError",
    "Written",
    "open_session",
    "read_metrics",
    "register",
]

if not TYPE_CHECKING:  # see `echoless`
    __getattr__, __dir__ = imported_on_use(
        __name__,
        {
            "BatchMetrics": "pipeline.exactly_once.batch_metrics",
            "BatchSource": "pipeline.batches.batch_source",
            "ExactlyOnceSink": "pipeline.exactly_once.sink",
            "LedgerError": "pipeline.exactly_once.errors",
            "OptionError": "pipeline.exactly_once.errors",
            "ReplayMismatchError": "pipeline.exactly_once.errors",
            "RowError": "pipeline.exactly_once.errors",
            "SinkError": "pipeline.exactly_once.errors",
            "Written": "pipeline.exactly_once.partition_writer",
            "open_session": "pipeline.session",
            "read_metrics": "pipeline.exactly_once.ledger_metrics",
            "register": "pipeline.exactly_once.data_source",
        },
    )
