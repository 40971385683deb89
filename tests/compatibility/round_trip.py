"""A round trip: one client writes a series, another reads it, and nothing differs.

What was read is compared with what the generator says, not with what the writer says; the ack log
is compared with where the records must lie.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from pathlib import Path

from tests.compatibility.clients.python.records import Series
from tests.compatibility.programs import Program

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """Records of one seed on their way through the topic `topic` of the broker at `address`.

    `read_from` is the address that the reader begins with, if it is another one.
    """

    address: str
    topic: str
    count: int
    seed: int
    partitions: int
    directory: Path
    read_from: str | None = None

    def check(self, writer: Program, reader: Program, codec: str) -> None:
        """Writes, reads, and asserts that every record came back once, in order, unchanged."""
        series = self._series(writer)
        self._write(writer, codec, series)
        read = reader.run("consume", **self._place_to_read())["partitions"]
        digests = series.digests(range(self.count))
        expected = {
            partition: self._report(int(partition), digest) for partition, digest in digests.items()
        }
        if read != expected:
            raise AssertionError(f"{read} != {expected}: {self._first_difference(reader, series)}")

    def _series(self, writer: Program) -> Series:
        return Series(
            seed=self.seed,
            partitions=self.partitions,
            # Recent, as retention looks at the records' own timestamps; an hour, as they run ahead.
            base_timestamp=int(time.time() * 1000) - _HOUR_MS,
            null_headers=writer.null_headers,
        )

    def _where(self) -> dict[str, object]:
        return {"bootstrap": self.address, "topic": self.topic, "partitions": self.partitions}

    def _place_to_read(self) -> dict[str, object]:
        return {**self._where(), "bootstrap": self.read_from or self.address}

    def _write(self, writer: Program, codec: str, series: Series) -> None:
        ack_log = self.directory / "acks"
        summary = writer.run(
            "produce",
            **self._where(),
            codec=codec,
            count=self.count,
            seed=self.seed,
            base_timestamp=series.base_timestamp,
            ack_log=ack_log,
        )
        assert (summary["acked"], summary["errors"]) == (self.count, {})
        acks = sorted(
            tuple(int(field) for field in line.split()) for line in ack_log.read_text().splitlines()
        )
        assert acks == [
            (partition, offset, partition + self.partitions * offset)
            for partition in range(self.partitions)
            for offset in range(self._length(partition))
        ]

    def _length(self, partition: int) -> int:
        return len(range(partition, self.count, self.partitions))

    def _report(self, partition: int, digest: str) -> dict[str, int | str]:
        length = self._length(partition)
        return {
            "count": length,
            "first_offset": 0,
            "next_offset": length,
            "gaps": 0,
            "digest": digest,
        }

    def _first_difference(self, reader: Program, series: Series) -> str:
        """Reads once more, record by record, and names the first that is not as expected."""
        path = self.directory / "records"
        reader.run("consume", **self._place_to_read(), records=path)
        lines: dict[int, list[list[str]]] = {p: [] for p in range(self.partitions)}
        for line in path.read_text().splitlines():
            fields = line.split()
            lines[int(fields[0])].append(fields)
        for partition, read in lines.items():
            numbers = range(partition, self.count, self.partitions)
            for offset, (number, fields) in enumerate(itertools.zip_longest(numbers, read)):
                wanted = None if number is None else series.record(number).canonical().hex()
                if fields is None or fields[1:] != [str(offset), str(number), wanted]:
                    return _difference(f"partition {partition} offset {offset}", fields, wanted)
        return "the second reading found no difference"


def _difference(where: str, read: list[str] | None, wanted: str | None) -> str:
    """Both records around the first byte that differs, in hex."""
    found = "" if read is None else read[3]
    same = itertools.takewhile(
        lambda pair: pair[0] == pair[1], zip(found, wanted or "", strict=False)
    )
    shared = sum(1 for _ in same) // 2 * 2
    part = slice(max(0, shared - 16), shared + 64)
    return (
        f"first difference at {where} (number {read and read[2]}), byte {shared // 2} of the "
        f"canonical form: read ...{found[part]}, wanted ...{(wanted or '')[part]}"
    )
