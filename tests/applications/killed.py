"""Applications with exactly-once settings and the brokers below them, each killed many times: the long form of the tests.

Each function plays one application to its end, raises `AssertionError` if a record is missing or there twice for readers of
committed records, and returns its figures.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.applications.connect import ExactlyOnceSource
from tests.applications.flink_job import CopiedTopics, FlinkJob
from tests.applications.servers import Servers
from tests.applications.word_count import COUNTS, PARTITIONS, WORDS, Counting
from tests.transactions.copied import read_all

_LINES_AT_ONCE: Final = 40
_RECORDS_AT_ONCE: Final = 60
_WITHIN_S: Final = 300.0
_ASK_AGAIN_S: Final = 0.05
_LOSES_STATE: Final = 4
"""Every such life of the word count begins without the directory of the one before."""
KILLED: Final = "applications killed"
STRUCK: Final = "brokers killed"
COMMITTED: Final = "records committed, each once"
ABORTED: Final = "records stored and never committed"


def count_words(servers: Servers, directory: Path, jars: Path, kills: int) -> Counter[str]:
    """Kafka Streams: in each life a broker is killed in an open transaction, and the application in a later one."""
    counting = Counting(servers, directory, jars)
    for life in range(kills):
        running = counting.begun(life, f"state-{life // _LOSES_STATE}")
        _wait_for_flow(counting, running.wait_until)
        servers.strike()
        _wait_for_flow(counting, running.wait_until)
        running.kill()
    servers.heal()
    running = counting.begun(kills, f"state-{kills // _LOSES_STATE}")
    running.wait_until(counting.is_done, "everything is counted", within_s=_WITHIN_S)
    counting.write(PARTITIONS)
    running.wait_until(counting.is_done, "two more lines are counted, in another transaction")
    running.kill()
    assert counting.committed.counts == counting.wanted()
    counting.committed.close()
    stored = len(read_all(servers.bootstrap, "read_uncommitted", COUNTS, PARTITIONS))
    return _figures(kills, kills, counting.written * len(WORDS), stored)


def _wait_for_flow(counting: Counting, wait_until: Callable[..., None]) -> None:
    before = counting.written
    counting.write(_LINES_AT_ONCE)
    wait_until(
        partial(counting.flow, before), "it counts, and a transaction is open", within_s=_WITHIN_S
    )


def copy_with_flink(
    servers: Servers, directory: Path, naming: str, kills: int, dice: random.Random
) -> Counter[str]:
    """Flink: killed with a transaction open, with a checkpoint not committed, or after a commit whose answer is lost."""
    topics = CopiedTopics(servers.bootstrap, replicas=servers.replicas)
    job = FlinkJob(servers.bootstrap, directory / "flink", naming)
    begins_from, strikes = "-", 0
    for number in range(kills):
        job.start(begins_from)
        if number % 2:
            _write_and_wait(topics, job)
            servers.strike()
            strikes += 1
            topics.wait_for(topics.written, is_committed=True, job=job, asks=True)
            _write_and_wait(topics, job)
        else:
            topics.wait_for(topics.written, is_committed=True, job=job, asks=True)
            _write_and_wait(topics, job)
            with _losing_ends(servers, dice.choice(["drop_request", "drop_response"])) as acted:
                job.checkpoint()
                acted()
        begins_from = job.newest
        job.kill()
    servers.heal()
    job.start(begins_from)
    topics.wait_for(topics.written, is_committed=True, job=job, asks=True)
    begins_from = job.stop()
    job.kill()
    job.start(begins_from, prefix="other")
    topics.write(_RECORDS_AT_ONCE)
    topics.wait_for(topics.written, is_committed=True, job=job, asks=True)
    job.kill()
    return _figures(kills, strikes, topics.written, topics.stored().total())


def _write_and_wait(topics: CopiedTopics, job: FlinkJob) -> None:
    """Has the job write some records more, in a transaction that is open then."""
    topics.write(_RECORDS_AT_ONCE)
    topics.wait_for(topics.written, is_committed=False, job=job)


@contextmanager
def _losing_ends(servers: Servers, action: str) -> Iterator[Callable[[], None]]:
    """Loses every EndTxn, or its answer; what it yields returns once one is lost."""
    with ExitStack() as stack:
        faults = [Faults(Admin(one)) for one in servers.admins()]
        rules = [
            stack.enter_context(each.rule(action, match={"api": "end_txn"})) for each in faults
        ]

        def acted() -> None:
            until = time.monotonic() + _WITHIN_S
            while not any(rule.hits for rule in rules):
                assert time.monotonic() < until, "Flink has ended no transaction"
                time.sleep(_ASK_AGAIN_S)

        yield acted


def copy_with_connect(servers: Servers, directory: Path, kills: int) -> Counter[str]:
    """Kafka Connect: a broker is killed in an open transaction, and the worker in a later one."""
    source = ExactlyOnceSource(directory, servers, "written-once")
    source.start()
    for _ in range(kills):
        source.wait_until_open()
        servers.strike()
        source.wait_until_open()
        source.restart()
    servers.heal()
    source.wait_until_written()
    source.close()
    return _figures(kills, kills, source.check(), source.stored())


def _figures(kills: int, strikes: int, committed: int, stored: int) -> Counter[str]:
    return Counter(
        {KILLED: kills, STRUCK: strikes, COMMITTED: committed, ABORTED: stored - committed}
    )
