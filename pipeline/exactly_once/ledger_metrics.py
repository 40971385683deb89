"""Figures of the last batches of a sink, as its ledger has them: for queries that run elsewhere, and for listeners of their progress."""

from __future__ import annotations

from collections.abc import Mapping

from echoless.pipeline.exactly_once.batch_metrics import BatchMetrics
from echoless.pipeline.exactly_once.batch_tasks import recorded_batches
from echoless.pipeline.exactly_once.ledger_files import open_ledger_files
from echoless.pipeline.exactly_once.options import store_options
from echoless.pipeline.exactly_once.store_settings import StoreSettings


def read_metrics(
    ledger: str, name: str = "stream", options: Mapping[str, str] | None = None
) -> list[BatchMetrics]:
    """Reads the figures of the last batches with rows, the oldest first; about ten are kept.

    `ledger`: its directory or URI; of a stream as a data source, `<checkpointLocation>/echoless-ledger`. `name`: the sink's.
    `options`: `ledger.*`, as the sink takes them. Raises `LedgerError`, `OptionError`.
    """
    files = open_ledger_files(ledger, StoreSettings(store_options(options or {})))
    return sorted(recorded_batches(files, name), key=lambda one: one.batch_id)
