"""How long a start takes after kill -9 under load, by the size of the log.

    python -m benchmarks.recovery [--gigabytes 1 4 10]

A real broker is filled with 1 MB batches and killed while it is being written to; then it is started
again, and the time to its ready line is compared with that of a start after a clean stop.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import time
from pathlib import Path

from benchmarks.raw_load import send_batches
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection, create_topic

_BATCH_BYTES = 1_000_000
_BATCHES_AT_ONCE = 100
_TOPIC = "filled"


def timed_start(broker: Echoless) -> float:
    begin = time.perf_counter()
    broker.start()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1, 4, 10])
    arguments = parser.parse_args()
    for gigabytes in arguments.gigabytes:
        with tempfile.TemporaryDirectory() as directory:
            measure(Echoless(Path(directory), {"message_max_bytes": "2000000"}), gigabytes)


def measure(broker: Echoless, gigabytes: float) -> None:
    """Fills, kills at once, starts; stops cleanly, starts; prints both times."""
    broker.start()
    asyncio.run(fill(broker.kafka_address, int(gigabytes * 1000)))
    broker.kill()
    after_kill = timed_start(broker)
    recovered = re.findall(r".*recover.*", broker.process.log())
    broker.terminate()
    after_stop = timed_start(broker)
    broker.kill()
    print(
        f"{gigabytes:5.1f} GB: ready after kill -9 in {after_kill:.2f} s, "
        f"after a clean stop in {after_stop:.2f} s",
        *recovered[-1:],
        flush=True,
    )


async def fill(address: str, batches: int) -> None:
    """Sends batches to one partition, a hundred at a time so that the client stays small."""
    connection = await RawConnection.open(address)
    await create_topic(connection, _TOPIC, 1)
    await connection.close()
    for sent in range(0, batches, _BATCHES_AT_ONCE):
        await send_batches(
            address, _BATCH_BYTES, min(_BATCHES_AT_ONCE, batches - sent), topic=_TOPIC
        )


if __name__ == "__main__":
    main()
