"""A copier in a process of its own, which says at each stage how far it is, so that it can be killed there.

    python -m tests.client.copier.process ADDRESS GROUP [NAME=VALUE...]

Copies `TOPIC` to `COPIES`: a record goes to the partition that its value decides, and every seventh one
twice. The settings are those of `CopierSettings`, as JSON values.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Iterable

from echoless.client.copier.copier import Copier
from echoless.client.copier.records import InputRecord, OutputRecord
from echoless.client.copier.settings import CopierSettings
from echoless.client.settings import Settings

TOPIC = "source"
PARTITIONS = 4
COPIES = "copies"
COPIES_PARTITIONS = 3
COPIED_PER_LINE = 40
PRODUCER = Settings(
    batch_records_max=7, request_timeout_s=5, retry_backoff_s=0.002, retry_backoff_max_s=0.05
)


def copies_of(record: InputRecord) -> Iterable[OutputRecord]:
    """One copy, and for every seventh record a second one, in partitions that depend on the value."""
    assert record.value is not None
    number = int(record.value)
    for part in range(2 if number % 7 == 0 else 1):
        yield OutputRecord(
            topic=COPIES,
            partition=(number + part) % COPIES_PARTITIONS,
            key=b"%d" % record.partition,
            value=b"%d/%d" % (number, part),
        )


class _Told:
    """Copies, and says so now and then."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, record: InputRecord) -> Iterable[OutputRecord]:
        self._count += 1
        if self._count % COPIED_PER_LINE == 0:
            print("copied", flush=True)
        return copies_of(record)


async def main(address: str, group: str, options: dict[str, object]) -> None:
    settings = CopierSettings(
        group=group, topics=(TOPIC,), commit_interval_s=0.2, commit_records_max=100, **options
    )
    copier = Copier(
        address,
        address,
        settings,
        _Told(),
        producer_settings=PRODUCER,
        on_commit=lambda figures: print(f"committed {figures.partitions}", flush=True),
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, copier.stop)
    await copier.run()
    print("done", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(
        main(
            sys.argv[1],
            sys.argv[2],
            {
                name: json.loads(value)
                for name, _, value in (a.partition("=") for a in sys.argv[3:])
            },
        )
    )
