"""Identity of a ledger, by which tasks know that they see the driver's.

A path without a host means another directory on each machine, and tasks that do not see each other's entries store
rows twice. So the driver puts an id into the ledger, and every task looks for it.

    <ledger>/<sink>/ledger.json     {"version": 1, "id": "0b7c..."}
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Final

from echoless.pipeline.exactly_once.batch_metrics import CountedFiles
from echoless.pipeline.exactly_once.default_places import DefaultPlaces
from echoless.pipeline.exactly_once.errors import LedgerError
from echoless.pipeline.exactly_once.ledger_files import (
    LedgerFiles,
    absolute_location,
    check_conditions,
    open_ledger_files,
)
from echoless.pipeline.exactly_once.options import SinkOptions

VERSION: Final = 1
_NAME: Final = "ledger.json"


def open_files(options: SinkOptions) -> CountedFiles:
    """Opens the ledger that the options name. Raises `OptionError`; `LedgerError` if it has another id."""
    files = CountedFiles(_open(options))
    if options.ledger_id is not None and _read(files, options.name) != options.ledger_id:
        raise LedgerError(
            f"ledger {options.ledger} is not the driver's ledger on this machine: set "
            "ledgerLocation to a place that all machines share, with its scheme and host"
        )
    return files


def placed(options: SinkOptions, places: DefaultPlaces) -> SinkOptions:
    """Returns the options with the ledger where Spark would look for it, and its settings of stores. Raises `OptionError`."""
    store = replace(options.store, hadoop=places.stores.hadoop)
    return replace(options, ledger=places.resolved(options.ledger), store=store)


def identified(options: SinkOptions) -> SinkOptions:
    """Returns the options for the tasks, with the ledger's id; the driver creates one if there is none.

    Raises `OptionError` if the store cannot create a file only once.
    """
    files = _open(options)
    found = _read(files, options.name)
    if found is None:
        if not options.ledger_has_single_writer:
            check_conditions(files, options.name, options.ledger)
        fields = {"version": VERSION, "id": uuid.uuid4().hex}
        files.create(f"{options.name}/{_NAME}", json.dumps(fields).encode())
        found = _read(files, options.name)
    return replace(options, ledger=absolute_location(options.ledger), ledger_id=found)


def _open(options: SinkOptions) -> LedgerFiles:
    has_single_writer = options.ledger_has_single_writer
    return open_ledger_files(options.ledger, options.store, has_single_writer=has_single_writer)


def _read(files: LedgerFiles, sink: str) -> str | None:
    path = f"{sink}/{_NAME}"
    data = files.find(path)
    if data is None:
        return None
    try:
        return str(json.loads(data)["id"])
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"{path}: not a ledger id: {error!r}") from error
