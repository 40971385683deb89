"""Checkpoints and ledgers that were moved, copied or put back: each ends as `docs/sink.md` says, and no row is stored twice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.exactly_once.text_stream import DATA_SOURCE, WAYS, Pipeline
from tests.pipeline.stores.servers import BUCKET, versitygw

pytestmark = pytest.mark.spark

DIRECTORY, S3 = PLACES = ("directory", "s3")
OTHER_ROWS = "Spark partitions|not what an earlier attempt sent|the batch is complete"
OLD_COPY = "the ledger is an old copy"


class Stream(Pipeline):
    """A stream whose checkpoint and ledger can be copied and put back."""

    copies = 0

    @property
    def has_ledger_in_checkpoint(self) -> bool:
        return self.way == DATA_SOURCE and self.store is None

    @property
    def ledger_directory(self) -> Path:
        if self.has_ledger_in_checkpoint:
            return self.checkpoint / "echoless-ledger"
        if self.store is None:
            return self.ledger
        return self.source.parent / "data" / BUCKET

    def run_once_more(self) -> None:
        self.add_file()
        self.run()
        assert self.stored() == self.expected()

    def copy(self, directory: Path) -> Path:
        self.copies += 1
        return Path(shutil.copytree(directory, self.source.parent / f"copy-{self.copies}"))

    def put_back(self, copy: Path, directory: Path) -> None:
        shutil.rmtree(directory)
        shutil.copytree(copy, directory)

    def refuses(self, reason: str) -> None:
        """Runs the stream, which stores nothing and says why."""
        before = self.stored()
        with pytest.raises(PySparkException, match=reason):
            self.run()
        assert self.stored() == before


@pytest.fixture(params=product(PLACES, WAYS), ids=" ".join)
def stream(spark: Any, broker: BrokerThread, tmp_path: Path, request: Any) -> Iterator[Stream]:
    place, way = request.param
    with versitygw(tmp_path) if place == S3 else nullcontext() as store:
        yield Stream(spark, broker, tmp_path, way, store)


def test_moved_checkpoints_end_as_documented(stream: Stream) -> None:
    """A commit that is deleted, two queries with one id, an old checkpoint, an old copy of the ledger: one after the other."""
    stream.run_once_more()
    stream.forget_commit()
    stream.run()
    assert stream.stored() == stream.expected()

    first, twin = stream.checkpoint, stream.copy(stream.checkpoint)
    old_ledger = stream.copy(stream.ledger_directory)
    stream.run_once_more()
    stream.checkpoint = stream.copy(twin)
    if stream.has_ledger_in_checkpoint:
        stream.refuses(OLD_COPY)
    else:  # it finds what the first has stored, and goes on from there
        stream.run()
        assert stream.stored() == stream.expected()
    stream.checkpoint = first

    new, new_ledger = stream.copy(first), stream.copy(stream.ledger_directory)
    stream.put_back(twin, first)
    if stream.has_ledger_in_checkpoint:
        stream.refuses(OLD_COPY)
        stream.add_file()
    else:
        stream.add_file()  # batch 1 has the rows of two files now
        stream.refuses(OTHER_ROWS)
    stream.put_back(new, first)

    stream.put_back(old_ledger, stream.ledger_directory)
    for _ in range(2):  # and more Spark partitions than the copy has lanes
        stream.add_file()
    stream.refuses(OLD_COPY)
    stream.put_back(new_ledger, stream.ledger_directory)
    stream.run()
    assert stream.stored() == stream.expected()
