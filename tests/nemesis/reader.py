"""A consumer that reads while everything breaks: librdkafka, in a separate process.

    python -m tests.nemesis.reader --bootstrap H:P --partitions N --rows FILE --topics T [T ...]

Reads every partition from its first offset and writes one row (topic index, partition, offset,
number) per record. On SIGTERM it reads to the current end of each partition, prints a line of JSON,
and ends. An offset that is suddenly gone is reported as a problem, never reset.
"""

from __future__ import annotations

import argparse
import json
import signal
import struct
import sys
import threading
import time
from array import array
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from tests.compatibility.clients.python.security import read_settings

ROW: Final = struct.Struct("<hhqq")
_MESSAGES_AT_A_TIME: Final = 2000
_END_TIMEOUT_S: Final = 60.0


def read_rows(path: Path) -> dict[tuple[int, int], array[int]]:
    """By (topic index, partition): offset, number, offset, number, ... in the order of reading."""
    content = path.read_bytes()
    whole = len(content) - len(content) % ROW.size
    rows: defaultdict[tuple[int, int], array[int]] = defaultdict(lambda: array("q"))
    for topic, partition, offset, number in ROW.iter_unpack(memoryview(content)[:whole]):
        rows[topic, partition].extend((offset, number))
    return rows


class Reader:
    """Reads until it is stopped and has reached the ends."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.problems: Counter[str] = Counter()
        self._topics = {topic: index for index, topic in enumerate(options.topics)}
        self._next: dict[tuple[str, int], int] = {
            (topic, partition): 0
            for topic in options.topics
            for partition in range(options.partitions)
        }
        self._rows = Path(options.rows).open("wb")  # noqa: SIM115 - until the process ends
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": "unused: partitions are assigned",
                "enable.auto.commit": False,
                "check.crcs": True,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 1000,
                "error_cb": lambda error: self.problems.update([error.name()] * error.fatal()),
                **read_settings(options.security),
            }
        )
        self._consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in self._next])

    def run(self, stopping: threading.Event) -> bool:
        """Reads; returns whether every partition was read to its end."""
        while not stopping.is_set():
            self._read_some()
        ends = {
            place: self._consumer.get_watermark_offsets(TopicPartition(*place), _END_TIMEOUT_S)[1]
            for place in self._next
        }
        deadline = time.monotonic() + _END_TIMEOUT_S
        while any(self._next[place] < end for place, end in ends.items()):
            if time.monotonic() > deadline:
                return False
            self._read_some()
        self._rows.close()
        return True

    def _read_some(self) -> None:
        for message in self._consumer.consume(_MESSAGES_AT_A_TIME, timeout=0.2):
            error = message.error()
            if error is not None:
                self.problems[error.name()] += 1
            else:
                self._take(message)

    def _take(self, message: Any) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        number = next(int(value) for name, value in message.headers() if name == "n")
        self._next[topic, partition] = offset + 1
        self._rows.write(ROW.pack(self._topics[topic], partition, offset, number))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topics", nargs="+", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--security", help="file of settings, by librdkafka's names")
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    reader = Reader(parser.parse_args())
    try:
        has_ended = reader.run(stopping)
    except KafkaException as error:
        has_ended = False
        reader.problems[str(error)] += 1
    print(json.dumps({"read_to_the_end": has_ended, "problems": reader.problems}), flush=True)
    return 0 if has_ended and not reader.problems else 1


if __name__ == "__main__":
    sys.exit(main())
