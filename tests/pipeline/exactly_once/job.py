"""A job as Spark would run it, batch after batch, in a process that can be killed.

    python -m tests.pipeline.exactly_once.job ADDRESS LEDGER

Batch b has the rows from b * BATCH_ROWS on. It is written unless an earlier run has reported that
it was. Each stage prints a line, so that the process which started the job can kill it there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from echoless.pipeline.exactly_once import rows as row_chunks
from echoless.pipeline.exactly_once.ends import end_batch
from echoless.pipeline.exactly_once.options import read_options
from echoless.pipeline.exactly_once.partition_writer import write_partition
from tests.pipeline.exactly_once.attempts import NAME, TOPIC, location, reports_of, rows

BATCHES = 8
BATCH_ROWS = 1000
PIECE_ROWS = 200


def main(address: str, directory: Path) -> None:
    """Continues after the last batch that is known to be written."""
    row_chunks.CHUNK_ROWS = PIECE_ROWS  # type: ignore[misc]
    options = read_options(
        {
            "kafka.bootstrap.servers": address,
            "topic": TOPIC,
            "kafka.batch.size": "1000",
            "kafka.compression.type": "lz4",
            "kafka.request.timeout.ms": "10000",
            "kafka.retry.backoff.ms": "2",
            "kafka.retry.backoff.max.ms": "50",
        },
        name=NAME,
        ledger=str(directory / "ledger"),
    )
    done = directory / "done"
    start = int(done.read_text()) if done.exists() else 0
    for batch_id in range(start, BATCHES):
        run = uuid4().hex
        attempted = write_partition(options, location(batch_id, run=run), _pieces(batch_id))
        assert end_batch(options, attempted.location, reports_of([attempted]))
        print("written", flush=True)
        done.with_suffix(".new").write_text(str(batch_id + 1))
        done.with_suffix(".new").replace(done)
        print("committed", flush=True)
    print("done", flush=True)


def _pieces(batch_id: int) -> Iterator[Any]:
    for first in range(0, BATCH_ROWS, PIECE_ROWS):
        yield rows(PIECE_ROWS, batch_id * BATCH_ROWS + first)
        print("given", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
