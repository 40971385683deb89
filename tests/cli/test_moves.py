"""How far moves are, and what a broker still holds, of three brokers in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.faults.reading_rules import read_rules
from echoless.broker.metadata.topic import NewTopic
from echoless.cli.errors import CommandError
from echoless.cli.move_progress import moves_with_bytes, show_moves
from echoless.cli.replica_sizes import bytes_text
from tests.broker.until import until
from tests.cli.command import Command, Ran
from tests.support.in_process import Running
from tests.support.in_process_cluster import in_process_cluster
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch

VALUE_BYTES = 50_000


class Moves:
    """A cluster with the topic `t`, which broker 1 has alone, and commands that are sent to it."""

    def __init__(self, brokers: list[Running], command: Command) -> None:
        self.brokers = brokers
        self._command = command

    async def run(self, *arguments: object) -> Ran:
        """A command, in a thread beside the brokers."""
        ran = await asyncio.to_thread(self._command, *arguments)
        assert ran.code == 0, ran.err
        return ran

    async def reassign(self, *arguments: object) -> Ran:
        return await self.run("topics", "reassign", *arguments)

    async def produce(self, count: int) -> None:
        connection = await NativeConnection.open(self.brokers[0].native_address)
        for _ in range(count):
            batch = plain_batch([bytes(VALUE_BYTES)]).encode()
            answer = await connection.call("produce", topic="t", partition=0, batch=batch, acks=1)
            assert answer["error"]["name"] == "NONE"
        await connection.close()

    def size_on(self, broker_id: int) -> int:
        """Bytes of the replica; 0 without one."""
        held = self.brokers[broker_id - 1].broker.partitions.get(("t", 0))
        return 0 if held is None else held.log.size_bytes

    def cut(self, broker_id: int) -> None:
        """The broker fetches nothing more from the leader."""
        rule: dict[str, Any] = {"action": {"type": "cut_replica_link", "broker_id": 1}}
        self.brokers[broker_id - 1].broker.faults.add(read_rules(rule))

    def mend(self) -> None:
        for one in self.brokers:
            one.broker.faults.clear()


@pytest.fixture
async def moves(
    tmp_path: Path, echoless: Command, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Moves]:
    async with in_process_cluster(tmp_path) as brokers:
        monkeypatch.setenv("ECHOLESS_BOOTSTRAP_SERVER", brokers[0].kafka_address)
        await brokers[0].broker.services.topics.create(NewTopic(name="t", assignment={0: (1,)}))
        moves = Moves(brokers, echoless)
        await moves.produce(1)
        yield moves


async def test_a_move_shows_the_bytes_of_each_copy(moves: Moves) -> None:
    """One replica has everything of its leader, then a quarter; another one, cut off, nothing."""
    moves.cut(2)
    moves.cut(3)
    assert (await moves.reassign("t", "--partition", 0, "--replicas", "2,3")).out == ""
    whole = moves.size_on(1)
    (move,) = (await moves.reassign("--json")).json
    assert (move["leader"], move["leader_bytes"]) == (1, whole)
    assert [(one["broker"], one["bytes"], one["percent"]) for one in move["copies"]] == [
        (2, 0, 0),
        (3, 0, 0),
    ]
    moves.brokers[2].broker.faults.clear()
    await until(lambda: moves.size_on(3) == whole)
    moves.cut(3)
    await moves.produce(3)
    (move,) = (await moves.reassign("--json")).json
    assert move["leader_bytes"] == 4 * whole
    assert [(one["bytes"], one["percent"]) for one in move["copies"]] == [(0, 0), (whole, 25)]
    table = (await moves.reassign()).out
    assert f"3: {bytes_text(whole)} of {bytes_text(4 * whole)} (25 %)" in table


async def test_waiting_ends_when_nothing_moves(
    moves: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how far the copies are, and then prints that nothing is being moved."""
    moves.cut(2)
    await moves.reassign("t", "--partition", 0, "--replicas", "2")
    has_asked = threading.Event()
    monkeypatch.setattr("echoless.cli.move_progress.sleep", lambda _: has_asked.set())
    waiting = asyncio.create_task(moves.reassign("--wait", "--json"))
    await until(has_asked.is_set)
    moves.mend()
    ran = await waiting
    assert ran.json == []
    assert f"1 partition being moved: 0 B of {bytes_text(moves.size_on(2))} copied (0 %)" in ran.err


async def test_a_broker_is_empty_when_everything_has_moved_away(moves: Moves) -> None:
    """Its partitions are listed with their bytes and roles, until it holds nothing."""
    whole = moves.size_on(1)
    held = (await moves.run("brokers", 1, "--json")).json
    assert (held["broker"], held["leads"], held["bytes"]) == (1, 1, whole)
    assert held["partitions"] == [
        {"topic": "t", "partition": 0, "role": "leads", "in_sync": True, "bytes": whole}
    ]
    assert (
        f"broker 1 holds 1 partition, leads 1, {bytes_text(whole)}\n"
        in (await moves.run("brokers", 1)).out
    )
    await moves.reassign("--replace", "1=2", "--wait")
    await until(lambda: not moves.brokers[0].broker.partitions)
    assert (await moves.run("brokers", 1)).out == "broker 1 holds nothing\n"
    every = (await moves.run("brokers", "--json")).json
    assert [(one["broker"], one["partitions"], one["leads"], one["bytes"]) for one in every] == [
        (1, 0, 0, 0),
        (2, 1, 1, whole),
        (3, 0, 0, 0),
    ]
    assert (await moves.run("brokers")).out.startswith("3 brokers\n")
    assert (await moves.run("brokers", 9)).out == "broker 9 is not registered, holds nothing\n"


def test_sizes_are_for_people() -> None:
    """Three digits before the point, with the unit."""
    shown = {None: "?", 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1_500_000: "1.4 MiB"}
    shown |= {3 << 40: "3.0 TiB", 5000 << 40: "5000.0 TiB"}
    assert {size: bytes_text(size) for size in shown} == shown


class PartlySilent:
    """Brokers 1 and 2, of which only the first answers; broker 3 is not registered."""

    broker_ids = (1, 2)

    def request_to(self, broker_id: int, _api: str, _fields: object) -> Any:
        if broker_id == 2:
            raise CommandError("broker 2: it is busy")
        row = SimpleNamespace(partition_index=0, partition_size=2048)
        topics = [SimpleNamespace(name="t", partitions=[row])]
        return SimpleNamespace(results=[SimpleNamespace(log_dir="d", topics=topics)])


def test_what_a_broker_does_not_say_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """It is not taken for nothing; the reason is on standard error, and all else is shown."""
    move = {"topic": "t", "partition": 0, "replicas": [1, 2, 3], "leader": 1, "isr": [1]}
    moving = [{**move, "adding": [2, 3], "removing": []}]
    cluster: Any = PartlySilent()
    said = set[str]()
    found = [moves_with_bytes(cluster, moving, said) for _ in range(3)][-1][0]
    assert (found["leader_bytes"], [one["bytes"] for one in found["copies"]]) == (2048, [None] * 2)
    show_moves([found], as_json=False)
    printed = capsys.readouterr()
    assert printed.err == "the bytes of broker 2 are not known: broker 2: it is busy\n"
    assert "2: ? of 2.0 KiB, 3: ? of 2.0 KiB" in printed.out
