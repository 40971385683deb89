"""`python -m benchmarks.transactional_ids`: what 100,000 transactional ids cost a coordinator, Echoless beside Apache Kafka.

    python -m benchmarks.transactional_ids [brokers] [load] [failover] [--ids 100 100000] [--brokers 1 3]

    brokers  one broker of each kind, then a cluster of three Echoless brokers; for each number of ids: ids/s as they are made, the
             memory that the brokers take on for one; the processor time of a transaction of an id among them, and the share of a
             core that is taken while no one asks; SIGKILL of the broker (of three: of one), and seconds from its start until
             each of a hundred ids of a single broker is answered for
    load     a coordinator in this process takes over a partition with so many ids: seconds, memory of one, and the longest
             step of its event loop in processor time
    failover three brokers of each kind with so many idle ids; SIGKILL of one: seconds until each of a hundred ids is answered for
             by the others, and their processor time. Few ids show what is not loading

Ids are made by raw requests on thirty-two connections, transactions by librdkafka.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import gc
import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.producer_memory import resident_bytes
from benchmarks.transactions import Brokers, Load, create, load
from benchmarks.versus_kafka import KAFKA_JVM, resident_mb
from echoless.broker.garbage import end_start
from echoless.protocol.record_batch import read_header
from echoless.protocol.records import Record, build_batch
from echoless.protocol.state_records.transaction_records import (
    EndedTransaction,
    TransactionEnd,
    TransactionStatus,
    TransactionValue,
    write_transaction_key,
    write_transaction_value,
)
from tests.broker.partitions.led import Led
from tests.broker.transactions.coordinating import Coordinating
from tests.storage.one_log import NOW_MS
from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka_cluster import ApacheKafkaCluster
from tests.support.cluster import Cluster
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection

_CONNECTIONS: Final = 32
_AGAIN: Final = frozenset({14, 15, 16, 51})
_TIMEOUT_S: Final = 120.0
_ONE_MINUTE: Final = datetime.timedelta(minutes=1)
_LOOKED_AT: Final = 100
_RECORDS_PER_BATCH: Final = 100


@dataclass(frozen=True)
class Running:
    """Brokers, the first of which can be killed and started again."""

    brokers: Brokers
    first: Echoless | ApacheKafka

    @property
    def addresses(self) -> list[str]:
        return self.brokers.bootstrap.split(",")

    @property
    def memory_mb(self) -> float:
        return sum(map(resident_mb, self.brokers.pids))


@contextmanager
def single() -> Iterator[list[Running]]:
    """One broker of each kind."""
    with tempfile.TemporaryDirectory(prefix="ids-") as name, ExitStack() as stack:
        ours = Echoless(Path(name) / "echoless")
        settings = {"transaction.state.log.num.partitions": "8"}
        theirs = ApacheKafka(Path(name) / "kafka", settings, jvm=KAFKA_JVM)
        found = []
        for kind, one in (("Echoless", ours), ("Kafka 3.9.1", theirs)):
            stack.callback(one.kill)
            one.start()
            found.append(Running(Brokers(kind, one.kafka_address, [one.process.pid]), one))
        yield found


@contextmanager
def three_of_kafka() -> Iterator[list[Running]]:
    """A cluster of three."""
    settings = {
        "transaction.state.log.num.partitions": "8",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    with (
        tempfile.TemporaryDirectory(prefix="ids-") as name,
        ApacheKafkaCluster(Path(name), settings, jvm=KAFKA_JVM) as cluster,
    ):
        cluster.start()
        pids = [one.process.pid for one in cluster.nodes]
        yield [Running(Brokers("Kafka 3.9.1", cluster.bootstrap, pids), cluster.nodes[0])]


@contextmanager
def three() -> Iterator[list[Running]]:
    """A cluster of three."""
    with tempfile.TemporaryDirectory(prefix="ids-") as name, Cluster(Path(name)) as cluster:
        cluster.start()
        pids = [one.process.pid for one in cluster.brokers.values()]
        yield [Running(Brokers("Echoless", cluster.bootstrap, pids), cluster.brokers[1])]


class Client:
    """Raw connections to every broker, and the coordinators of ids."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._connections: dict[tuple[int, int], RawConnection] = {}

    async def make(self, first: int, end: int) -> None:
        """Makes the ids with these numbers."""
        numbers = iter(range(first, end))
        await asyncio.gather(*(self._make_some(worker, numbers) for worker in range(_CONNECTIONS)))

    async def _make_some(self, worker: int, numbers: Iterator[int]) -> None:
        for number in numbers:
            await self.initialise(f"id-{number}", worker)

    async def initialise(self, name: str, worker: int = 0) -> None:
        """Initialises an id, at whichever broker coordinates it."""
        place, deadline = 0, time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            connection = await self._connection(worker, place)
            answer = await connection.call(
                "init_producer_id",
                4,
                transactional_id=name,
                transaction_timeout=_ONE_MINUTE,
                producer_id=-1,
                producer_epoch=-1,
            )
            if not answer.error_code:
                return
            assert answer.error_code in _AGAIN, answer
            if answer.error_code == 16:
                place = (place + 1) % len(self._addresses)
            else:
                await asyncio.sleep(0.01)
        raise TimeoutError(name)

    async def _connection(self, worker: int, place: int) -> RawConnection:
        key = worker, place
        if key not in self._connections:
            self._connections[key] = await RawConnection.open(self._addresses[place])
        return self._connections[key]

    async def close(self) -> None:
        for one in self._connections.values():
            await one.close()


async def make(running: Running, first: int, end: int) -> None:
    client = Client(running.addresses)
    await client.make(first, end)
    await client.close()


async def ask(running: Running) -> None:
    """Returns when ids are answered for."""
    client = Client(running.addresses)
    for number in range(_LOOKED_AT):
        await client.initialise(f"id-{number}")
    await client.close()


def measure(running: Running, ids: Sequence[int]) -> None:
    """One line for each number of ids, the least first."""
    brokers, there = running.brokers, 0
    create(brokers, 1)
    load(brokers, Load("transactions"), 5)
    for wanted in sorted(ids):
        memory_mb, begun_s, spent_s = running.memory_mb, time.perf_counter(), brokers.processor_s()
        asyncio.run(make(running, there, wanted))
        made, took_s = wanted - there, time.perf_counter() - begun_s
        cost_us = 1e6 * (brokers.processor_s() - spent_s) / made
        memory = 1024 * (running.memory_mb - memory_mb) / made
        there = wanted
        time.sleep(2)
        spent_s = brokers.processor_s()
        time.sleep(10)
        idle = (brokers.processor_s() - spent_s) / 10 / len(brokers.pids)
        busy = min(load(brokers, Load("transactions"), 3)["cost_us"] for _ in range(3))
        line = f"{brokers.name:12} {wanted:7} ids: {made / took_s:6.0f} made/s, {cost_us:5.0f} us and {memory:5.1f} KB each; "
        line += f"{busy:6.0f} us/transaction beside them, {100 * idle:5.2f} % of a core idle"
        print(line, flush=True)
    running.first.kill()
    begun_s = time.perf_counter()
    running.first.start()
    started_s = time.perf_counter()
    asyncio.run(ask(running))
    answered_s = time.perf_counter()
    print(
        f"{brokers.name:12} killed: {started_s - begun_s:.2f} s to its start, "
        f"{answered_s - started_s:.2f} s more until ids are answered for"
    )


def fail_over(running: Running, wanted: int) -> None:
    """One line: what the other brokers do when the first one, which coordinates a third of the ids, is killed."""
    create(running.brokers, 1)
    load(running.brokers, Load("transactions"), 1)  # which has the topic of the state made
    asyncio.run(make(running, 0, wanted))
    time.sleep(5)
    kind, pids = running.brokers.name, running.brokers.pids
    others = Brokers(kind, ",".join(running.addresses[1:]), pids[1:])
    spent_s, begun_s = others.processor_s(), time.perf_counter()
    running.first.kill()
    asyncio.run(ask(Running(others, running.first)))
    took_s, spent_s = time.perf_counter() - begun_s, others.processor_s() - spent_s
    print(
        f"{kind:12} {wanted:7} ids, one of three killed: {took_s:.2f} s until ids are answered for, "
        f"{spent_s:.2f} s of processor time",
        flush=True,
    )


def take_over(ids: Sequence[int]) -> None:
    """A coordinator in this process; one line for each number of ids."""
    for wanted in sorted(ids):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(runner.run(_take_over(wanted)), flush=True)


async def _take_over(wanted: int) -> str:
    end_start()
    one = Coordinating()
    for led in one.led:
        _fill(led, wanted // len(one.led))
    gc.collect()
    before = resident_bytes()
    is_over, longest_s = asyncio.Event(), 0.0

    async def watch() -> None:
        nonlocal longest_s
        while not is_over.is_set():
            begun_s = time.thread_time()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.thread_time() - begun_s)

    watching = asyncio.ensure_future(watch())
    begun_s, spent_s = time.perf_counter(), time.process_time()
    await one.serve()
    took_s, spent_s = time.perf_counter() - begun_s, time.process_time() - spent_s
    is_over.set()
    await watching
    each = (resident_bytes() - before) / wanted
    timers = one.timer_count
    await one.service.close()
    return (
        f"{wanted:7} ids taken over in {took_s:.2f} s ({spent_s:.2f} s of processor time), {each:.0f} bytes each, "
        f"longest step {1000 * longest_s:.2f} ms, {timers} timers"
    )


def _fill(led: Led, count: int) -> None:
    """Stores ids whose last transaction was committed."""
    for first in range(0, count, _RECORDS_PER_BATCH):
        batch = range(first, min(first + _RECORDS_PER_BATCH, count))
        records = build_batch([Record(0, 0, *_state(number)) for number in batch])
        led.partition.append_for_coordinator(records, read_header(records), NOW_MS)


def _state(number: int) -> tuple[bytes, bytes]:
    value = TransactionValue(
        *(number, 3, 60_000, TransactionStatus.COMPLETE_COMMIT),
        update_ms=1_700_000_000_000 + number,
        start_ms=1_700_000_000_000,
        previous_producer_id=number,
        client_version=2,
        number=3,
        last_epoch=2,
        ended=EndedTransaction(number, 2, TransactionEnd.COMMITTED),
    )
    return write_transaction_key(f"orders-service-{number}"), write_transaction_value(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["load", "brokers"])
    parser.add_argument("--ids", type=int, nargs="+", default=[100, 100_000])
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 3], choices=[1, 3])
    arguments = parser.parse_args()
    if "load" in arguments.what:
        take_over(arguments.ids)
    if "failover" in arguments.what:
        for kind, wanted in itertools.product((three, three_of_kafka), arguments.ids):
            with kind() as (running,):
                fail_over(running, wanted)
    if "brokers" in arguments.what:
        for count in arguments.brokers:
            with (single if count == 1 else three)() as found:
                for running in found:
                    measure(running, arguments.ids)


if __name__ == "__main__":
    main()
