"""Time and requests of a Spark mirror, by number of topics: all of them new, one with new records, and none.

    python -m benchmarks.mirror_topics [--topics 1000 5000] [--records 100]

Source and target are brokers in processes of their own, and each run is one of `python -m echoless.spark mirror --once`. Topics have one
partition. Figures of `docs/mirror.md`; requests are those of the brokers' metrics.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from benchmarks.mirror_groups import Pair, create_topics, requests_of
from tests.support.echoless import Echoless

_FLUSH_S: Final = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--records", type=int, default=100, help="in each topic")
    options = parser.parse_args()
    for count in options.topics:
        with tempfile.TemporaryDirectory() as directory:
            pair = Pair(*(Echoless(Path(directory) / name) for name in ("source", "target")))
            try:
                for one in pair:
                    one.start()
                measure(pair, count, options.records, Path(directory) / "checkpoint")
            finally:
                for one in pair:
                    one.kill()


def measure(pair: Pair, count: int, records: int, checkpoint: Path) -> None:
    """Mirrors three times, and prints what each run cost."""
    names = [f"t.{number:05}" for number in range(count)]
    create_topics(pair.source.kafka_address, names)
    produce(pair.source.kafka_address, names, records)
    print(f"{count:,} topics of {records} records")
    mirror(pair, checkpoint, "all topics are new")
    produce(pair.source.kafka_address, names[:1], records)
    mirror(pair, checkpoint, "one has records")
    mirror(pair, checkpoint, "none has records")


def mirror(pair: Pair, checkpoint: Path, what: str) -> None:
    """Runs the command until it has caught up."""
    source, target = (one.kafka_address for one in pair)
    before, began = [requests_of(one) for one in pair], time.perf_counter()
    command = [sys.executable, "-m", "echoless.spark", "mirror", "--once", "--create-topics"]
    places = ["--from", source, "--to", target, "--checkpoint", str(checkpoint)]
    chosen = ["--topics-pattern", r"t\..*"]
    ran = subprocess.run(
        [*command, *places, *chosen], check=True, stdout=subprocess.PIPE, text=True
    )
    elapsed = time.perf_counter() - began
    said = ran.stdout.strip().splitlines()[-1]
    print(f"  {what}: {elapsed:.1f} s; {said}", flush=True)
    for name, one, earlier in zip(("source", "target"), pair, before, strict=True):
        counts = requests_of(one) - earlier
        text = ", ".join(f"{api} {n}" for api, n in sorted(counts.items()))
        print(f"    {name}: {counts.total()} requests: {text}", flush=True)


def produce(address: str, names: Sequence[str], records: int) -> None:
    """Sends records of 100 bytes to each topic."""
    producer = Producer({"bootstrap.servers": address, "log_level": 0, "linger.ms": 5})
    for number in range(records):
        for name in names:
            producer.produce(name, b"%0100d" % number, partition=0)
        producer.poll(0)
        assert producer.flush(_FLUSH_S) == 0


if __name__ == "__main__":
    main()
