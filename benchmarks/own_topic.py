"""A topic of its own for each load, deleted afterwards.

Gigabytes that stay in the page cache make the loads after them slow, and stall for up to 900 ms, whichever broker wrote them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from benchmarks.present_pages import take_pages

DELETES_SOON: Final = {"log_segment_delete_delay_ms": "100"}
"""The settings with which Echoless deletes the files of a topic within the second."""
KAFKA_DELETES_SOON: Final = {
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "100",
}
_DELETION_TIMEOUT_S: Final = 30.0
_NUMBERS: Final = itertools.count()


@contextmanager
def own_topic(bootstrap: str, data_dirs: Sequence[Path], load_bytes_max: int) -> Iterator[str]:
    """A name that no load has had; the machine has pages for `load_bytes_max` bytes. Its files are deleted in the end."""
    topic = f"load-{next(_NUMBERS)}"
    take_pages(load_bytes_max)
    try:
        yield topic
    finally:
        _delete(bootstrap, topic, data_dirs)


def _delete(bootstrap: str, topic: str, data_dirs: Sequence[Path]) -> None:
    """Returns when its files are gone."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.delete_topics([topic])[topic].result(_DELETION_TIMEOUT_S)
    deadline = time.monotonic() + _DELETION_TIMEOUT_S
    while any(found for one in data_dirs for found in one.rglob(f"{topic}*")):
        assert time.monotonic() < deadline, f"{topic} is still there"
        time.sleep(0.1)
