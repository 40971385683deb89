"""`python -m tests.hostile.siege.good_reader ADDRESS`: reads every record and compares it.

Runs beside the producer. The number of batches that were sent comes by standard input at the end;
the reader then reads up to it and says as JSON what it found: each batch once, in order, byte for
byte, and nothing else.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.hostile.siege.traffic import RECORDS, TOPIC, batch
from tests.support.raw_batches import StoredBatch, split_log
from tests.support.raw_client import ConnectionEndedError, RawConnection, list_offset, nested

_BYTES = 4 * 1024 * 1024
_HEADER_BYTES = 61
_PROBLEMS_MAX = 10


@dataclass
class Report:
    """The reader's findings."""

    batches: int = 0
    reconnects: int = 0
    problems: list[str] = field(default_factory=list)


class GoodReader:
    def __init__(self, address: str) -> None:
        self._address = address
        self.report = Report()
        self.wanted: int | None = None
        """How many batches there are, once the producer has ended."""

    async def run(self) -> None:
        """Reads until all batches were read, or something is wrong."""
        while len(self.report.problems) < _PROBLEMS_MAX:
            try:
                connection = await RawConnection.open(self._address)
                await self._read_all(connection)
            except (ConnectionEndedError, OSError):
                self.report.reconnects += 1
                await asyncio.sleep(0.05)
            else:
                return

    async def _read_all(self, connection: RawConnection) -> None:
        while self.wanted is None or self.report.batches < self.wanted:
            if self._take(await self._fetch(connection)):
                return
        try:
            end = await list_offset(connection, TOPIC, 0)
        except AssertionError as error:  # the broker refused to say
            self.report.problems.append(str(error))
            return
        if end != self.wanted * RECORDS:
            self.report.problems.append(f"the log ends at {end}, not at {self.wanted * RECORDS}")
        await connection.close()

    def _take(self, found: list[StoredBatch]) -> bool:
        """Compares batches; whether anything is wrong."""
        for one in found:
            number = self.report.batches
            expected = batch(number, 0)
            if one.base_offset != number * RECORDS or one.data[_HEADER_BYTES:] != expected.payload:
                self.report.problems.append(f"offset {one.base_offset} holds no batch {number}")
                return True
            self.report.batches += 1
        return False

    async def _fetch(self, connection: RawConnection) -> list[StoredBatch]:
        row: Any = nested("fetch", 11, "FetchPartition")(
            partition=0,
            fetch_offset=self.report.batches * RECORDS,
            partition_max_bytes=_BYTES,
        )
        response = await connection.call(
            "fetch",
            11,
            max_wait=datetime.timedelta(milliseconds=500),
            min_bytes=1,
            topics=(nested("fetch", 11, "FetchTopic")(topic=TOPIC, partitions=(row,)),),
            forgotten_topics_data=(),
        )
        found = response.responses[0].partitions[0]
        if found.error_code != 0:
            self.report.problems.append(f"fetching {self.report.batches}: {found.error_code!r}")
        return split_log(found.records or b"")


async def _main() -> None:
    reader = GoodReader(sys.argv[1])
    task = asyncio.create_task(reader.run())
    line = await asyncio.to_thread(sys.stdin.readline)
    reader.wanted = int(line)
    await task
    print(json.dumps(asdict(reader.report)), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
