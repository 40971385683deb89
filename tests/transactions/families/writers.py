"""Writers of numbers in transactions, one of each family that has no test of its own with brokers that are killed.

A transaction writes the numbers from `first` on to `OUTPUTS`, and commits the offset behind them in partition 0 of `INPUTS`,
which is virtual: only its offset counts. After an error the next transaction has a new producer.
"""

from __future__ import annotations

import asyncio
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from tests.compatibility.programs import BUILT, REPOSITORY
from tests.toolchain import require
from tests.transactions.copied import INPUTS, OUTPUTS, PARTITIONS

_HERE: Final = Path(__file__).parent
_WITHIN_S: Final = 60.0
_TIMEOUT_MS: Final = 30_000
_LOST_AFTER_S: Final = 40.0
NODE: Final = {**os.environ, "NODE_PATH": str(BUILT / "node" / "node_modules")}
"""The environment of the program in JavaScript."""


class TransactionError(Exception):
    """A transaction failed, or its outcome is not known; carries the client's own words."""


class Writer(Protocol):
    """One family's writer."""

    def transact(self, first: int, count: int, *, is_commit: bool) -> None:
        """Runs one transaction. Raises `TransactionError`."""

    def close(self) -> None: ...


class AioKafkaWriter:
    """aiokafka, on an event loop of its own."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._runner = asyncio.Runner()
        self._producer: Any = None

    def transact(self, first: int, count: int, *, is_commit: bool) -> None:
        """Runs one transaction. Raises `TransactionError`."""
        try:
            self._runner.run(
                asyncio.wait_for(self._transact(first, count, is_commit=is_commit), _WITHIN_S)
            )
        except Exception as error:
            self._runner.run(self._leave())
            raise TransactionError(repr(error)) from error

    async def _transact(self, first: int, count: int, *, is_commit: bool) -> None:
        from aiokafka import AIOKafkaProducer, TopicPartition

        if self._producer is None:
            self._producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap.split(","),
                transactional_id="aiokafka",
                transaction_timeout_ms=_TIMEOUT_MS,
            )
            await self._producer.start()
        await self._producer.begin_transaction()
        for number in range(first, first + count):
            await self._producer.send(OUTPUTS, b"%d" % number, partition=number % PARTITIONS)
        position = {TopicPartition(INPUTS, 0): first + count}
        await self._producer.send_offsets_to_transaction(position, self._group)
        if is_commit:
            await self._producer.commit_transaction()
        else:
            await self._producer.abort_transaction()

    async def _leave(self) -> None:
        """Takes leave of a producer that may not be able to do more."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                await asyncio.wait_for(producer.stop(), 1.0)
            except Exception:  # noqa: BLE001 - it has failed before
                return

    def close(self) -> None:
        self._runner.run(self._leave())
        self._runner.close()


class KafkaPythonWriter:
    """kafka-python."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._producer: Any = None

    def transact(self, first: int, count: int, *, is_commit: bool) -> None:
        """Runs one transaction. Raises `TransactionError`.

        kafka-python 3.0 loses a request that it has taken from its queue while the connection to the coordinator is
        reset, and waits for ever: one that takes so long is given up with its producer.
        """
        outcome: queue.Queue[Exception | None] = queue.Queue()

        def run() -> None:
            try:
                self._transact(first, count, is_commit=is_commit)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                outcome.put(error)
            else:
                outcome.put(None)

        threading.Thread(target=run, daemon=True).start()
        try:
            error = outcome.get(timeout=_LOST_AFTER_S)
        except queue.Empty:
            error = TimeoutError(f"no outcome after {_LOST_AFTER_S} s")
        if error is not None:
            self.close()
            raise TransactionError(repr(error)) from error

    def _transact(self, first: int, count: int, *, is_commit: bool) -> None:
        from kafka import KafkaProducer, TopicPartition
        from kafka.structs import OffsetAndMetadata

        if self._producer is None:
            self._producer = KafkaProducer(
                bootstrap_servers=self._bootstrap.split(","),
                transactional_id="kafka-python",
                transaction_timeout_ms=_TIMEOUT_MS,
            )
            self._producer.init_transactions()
        self._producer.begin_transaction()
        sent = [
            self._producer.send(OUTPUTS, b"%d" % number, partition=number % PARTITIONS)
            for number in range(first, first + count)
        ]
        for one in sent:
            one.get(_WITHIN_S)
        position = {TopicPartition(INPUTS, 0): OffsetAndMetadata(first + count, "", -1)}
        self._producer.send_offsets_to_transaction(position, self._group)
        if is_commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=1)


class ProgramWriter:
    """A program in another language: a line for each transaction, answered by "ok", or "failed" and the reason."""

    def __init__(self, command: Sequence[str], bootstrap: str, group: str) -> None:
        self._program = subprocess.Popen(
            [*command, "transact", bootstrap, OUTPUTS, str(PARTITIONS), group, INPUTS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=NODE,
        )

    def transact(self, first: int, count: int, *, is_commit: bool) -> None:
        """Runs one transaction. Raises `TransactionError`."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        end = "commit" if is_commit else "abort"
        print(first, count, end, file=self._program.stdin, flush=True)
        answer = self._program.stdout.readline().strip()
        assert answer, f"the program ended with {self._program.wait()}"
        if answer != "ok":
            raise TransactionError(answer)

    def close(self) -> None:
        self._program.kill()
        self._program.communicate()


def kafkajs_command() -> list[str]:
    """The program that uses kafkajs."""
    require("node", "node-client")
    return ["node", str(_HERE / "kafkajs.js")]


def franz_go_command(directory: Path) -> list[str]:
    """The program that uses franz-go, built with the versions of the other clients in Go."""
    require("go", "go-client")
    program = directory / "franz-go"
    build = ["go", "build", "-o", str(program), str(_HERE / "franz_go.go")]
    module = REPOSITORY / "tests" / "compatibility" / "clients" / "go"
    subprocess.run(build, cwd=module, check=True, timeout=300)
    return [str(program)]


def makers(directory: Path) -> dict[str, Callable[[str, str], Writer]]:
    """Return what makes each family's writer, by its name."""
    node, go = kafkajs_command(), franz_go_command(directory)
    return {
        "aiokafka": AioKafkaWriter,
        "kafka-python": KafkaPythonWriter,
        "kafkajs": lambda bootstrap, group: ProgramWriter(node, bootstrap, group),
        "franz-go": lambda bootstrap, group: ProgramWriter(go, bootstrap, group),
    }
