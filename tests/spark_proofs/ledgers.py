"""The place of a run's ledger: the query's checkpoint, or a store beside it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.pipeline.stores.faulty_s3 import Fault, faulty_s3
from tests.pipeline.stores.servers import Store, azurite, google, hdfs, versitygw

CHECKPOINT: Final = "checkpoint"
_FAULTY: Final = 0.15
"""The part of the faulty server's answers to PUTs that are not a good store's."""
_FAULTS: Final = [fault for fault in Fault if fault not in {Fault.NONE, Fault.UNCONDITIONAL}]


@contextmanager
def _faulty(directory: Path, seed: int) -> Iterator[Store]:
    dice = random.Random(seed)

    def choose() -> Fault:
        return dice.choice(_FAULTS) if dice.random() < _FAULTY else Fault.NONE

    with faulty_s3(choose) as (store, _):
        yield store


def _serves(
    server: Callable[[Path], AbstractContextManager[Store]],
) -> Callable[[Path, int], AbstractContextManager[Store]]:
    def start(directory: Path, seed: int) -> AbstractContextManager[Store]:
        directory.mkdir()
        return server(directory)

    return start


STORES: Final[Mapping[str, Callable[[Path, int], AbstractContextManager[Store]]]] = {
    "s3": _serves(versitygw),
    "azure": _serves(azurite),
    "google": _serves(google),
    "hdfs": _serves(hdfs),
    "faulty-s3": _faulty,
}
"""Servers with an empty place for ledgers: of a directory and a seed."""
LEDGERS: Final = (CHECKPOINT, *STORES)


def options_of(store: Store) -> dict[str, str]:
    """The sink's options for a ledger there."""
    settings = {f"ledger.{name}": value for name, value in store.options.items()}
    return {"ledgerLocation": store.uri, **settings}
