"""Brokers that share a tree which is lost, and restored from old copies: no id that a broker has seen comes again."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.cluster.tree_watch import TreeWatch
from echoless.broker.metadata.old_copy import OldCopyError
from echoless.broker.metadata.producer_id_block import (
    PATH,
    ProducerIdBlock,
    ProducerIdBlockError,
    raise_block,
)
from echoless.broker.metadata.producer_ids import ProducerIds
from echoless.broker.metadata.seen_tree import SeenTree
from echoless.broker.metadata.tree_mark import mark_path, raise_mark
from echoless.broker.replication.peers import PeerError
from echoless.broker.tree.node_tree import Node
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.storage.producer_id_checkpoint import SeenCounts
from tests.fakes.memory_node_tree import MemoryTree, turns

BROKERS = 3


class Place:
    """One broker: the data directory that stays, and the process that comes and goes."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.disk = SeenCounts()
        self.witnessed: dict[int, int] = {}
        """Ids that were handed out while this broker ran, and to which producer."""
        self.is_running = False
        self.is_refused = False
        """Whether the broker has ended, since its tree was an old copy."""

    async def save(self, seen: SeenCounts) -> None:
        await asyncio.sleep(0)
        self.disk = seen

    async def start(self) -> None:
        """Starts as a broker does; raises `OldCopyError` as it would."""
        world = self.world
        tree = world.server.connect()
        seen = SeenTree(tree, self.broker_id, self.disk, save=self.save, is_marked=True)
        await seen.read()
        await seen.prepare()
        await seen.note(is_new=True)
        live = SimpleNamespace(brokers=world.running())
        self.view = SimpleNamespace(live=live, native_address=lambda one: one)
        self.watch = TreeWatch(
            self.broker_id,
            tree,
            seen,
            SimpleNamespace(listen=lambda _: lambda: None),  # type: ignore[arg-type]
            view=self.view,  # type: ignore[arg-type]
            peers=world,  # type: ignore[arg-type]
            on_old_copy=self._end,
        )
        await self.watch.start()
        self.ids = ProducerIds(tree, self.broker_id, 3, seen=seen, confirm=self.watch.confirm)
        self.is_running = True

    def _end(self, _error: OldCopyError) -> None:
        self.is_refused = True

    async def stop(self) -> None:
        """SIGKILL."""
        if self.is_running:
            self.is_running = False
            await self.ids.close()
            await self.watch.close()


class World:
    """The tree, its copies, and the brokers; `call` is the network between them."""

    def __init__(self) -> None:
        self.server = MemoryTree()
        self.producers: dict[int, int] = {}
        """Who was given each id last, in this tree and those that it is a copy of."""
        self.producer_count = 0
        self.old_releases: set[int] = set()
        """Brokers that do not know `note_tree`."""
        self.copies: list[Any] = [copy.deepcopy((self.server.nodes, self.producers))]
        self.places = [Place(self, broker_id) for broker_id in range(BROKERS)]

    def running(self) -> dict[int, Place]:
        return {one.broker_id: one for one in self.places if one.is_running}

    async def call(
        self, broker_id: int, _address: object, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        """Delivers `note_tree`."""
        del timeout_s
        place = self.places[broker_id]
        if broker_id in self.old_releases and place.is_running:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "messages of type 'note_tree' are not known"
            )
        if not place.is_running:
            raise PeerError("cannot be reached")
        noted = await place.watch.note(message["last_id"])
        return {
            "error": {"code": 0, "name": "NONE", "message": "", "retriable": False},
            "last_id": noted,
        }

    # Steps

    async def start(self, number: int) -> None:
        """Starts a broker, which may refuse."""
        place = self.places[number]
        if not place.is_running:
            try:
                await place.start()
            except OldCopyError:
                return
            for one in self.running().values():
                one.view.live.brokers = self.running()
            self.judge()

    async def start_all(self, _number: int) -> None:
        """Starts those that do not run."""
        for number in range(BROKERS):
            await self.start(number)

    async def hand_out(self, number: int) -> None:
        """Takes two ids."""
        place = self.places[number]
        if not place.is_running or place.is_refused:
            return
        for _ in range(2):
            try:
                producer_id = await place.ids.wait_for_producer_id()
            except ProducerIdBlockError:
                return
            self.producer_count += 1
            self.producers[producer_id] = self.producer_count
            for one in self.running().values():
                one.witnessed.setdefault(producer_id, self.producer_count)
        self.judge()

    def judge(self) -> None:
        """No broker takes part whose logs may hold records of one id's two producers."""
        for one in self.running().values():
            again = [
                producer_id
                for producer_id, producer in one.witnessed.items()
                if self.producers.get(producer_id, producer) != producer
            ]
            assert not again or one.is_refused, (one.broker_id, again)

    async def stop(self, number: int) -> None:
        await self.places[number].stop()

    async def back_up(self, _number: int) -> None:
        self.copies.append(copy.deepcopy((self.server.nodes, self.producers)))

    async def restore(self, number: int) -> None:
        """Puts an older copy in the tree's place; all brokers end."""
        for place in self.places:
            await place.stop()
            place.is_refused = False
        self.server = MemoryTree()
        found = copy.deepcopy(self.copies[number % len(self.copies)])
        self.server.nodes, self.producers = found

    async def catch_up(self, _number: int) -> None:
        """The operator's remedy, on all machines while no broker runs."""
        tree = self.server.connect()
        self.producers.clear()  # what a broker did in a tree that the others refused is the operator's to judge
        for place in self.places:
            await place.stop()
        for place in self.places:
            await raise_block(tree, place.disk.last_id)
            await raise_mark(tree, place.broker_id, place.disk.mark)


STEPS = ("start_all", "start", "hand_out", "stop", "back_up", "restore", "catch_up")


async def play(steps: list[tuple[str, int]]) -> None:
    """Plays the steps, with time for watches in between."""
    world = World()
    for name, number in steps:
        chosen = number
        if name in {"start", "hand_out", "stop"}:  # one for which that makes sense
            some = [one for one in world.places if one.is_running is not (name == "start")]
            chosen = some[number % len(some)].broker_id if some else 0
        await getattr(world, name)(chosen)
        await turns()
    for place in world.places:
        await place.stop()


@given(
    st.lists(
        st.tuples(
            st.sampled_from((*STEPS, "start", "hand_out", "hand_out", "restore")),
            st.integers(min_value=0, max_value=5),
        ),
        min_size=10,
        max_size=50,
    )
)
def test_no_broker_takes_part_in_a_tree_that_hands_out_ids_it_has_seen(
    steps: list[tuple[str, int]],
) -> None:
    """Whatever is backed up, restored, started and claimed, and in whichever order."""
    asyncio.run(play(steps))


async def refusal_of(world: World, number: int) -> str:
    with pytest.raises(OldCopyError) as refused:
        await world.places[number].start()
    return str(refused.value)


async def test_each_broker_refuses_what_another_had_claimed() -> None:
    """Those that only saw the claim of the third, too."""
    world = World()
    for number in range(BROKERS):
        await world.start(number)
    await world.back_up(0)
    await world.hand_out(0)
    await world.restore(1)
    for number in range(BROKERS):
        assert "old copy" in await refusal_of(world, number)
        assert "catch-up" in await refusal_of(world, number)


async def test_a_broker_refuses_a_tree_that_has_gone_on_without_it() -> None:
    """One that was away claims the same block again; then the numbers alone look as if nothing had happened."""
    world = World()
    for number in range(BROKERS):
        await world.start(number)
    await world.back_up(0)
    await world.stop(2)
    await world.hand_out(0)
    await world.restore(1)
    await world.start(2)
    for _ in range(4):
        await world.hand_out(2)
    assert world.places[2].is_running
    for number in (0, 1):
        assert mark_path(number) in await refusal_of(world, number)


async def test_after_catching_up_ids_are_new() -> None:
    """On all machines before any broker starts."""
    world = World()
    for number in range(BROKERS):
        await world.start(number)
    await world.hand_out(0)
    await world.restore(0)
    await world.catch_up(0)
    for number in range(BROKERS):
        await world.start(number)
        assert world.places[number].is_running
        await world.hand_out(number)
    for number in range(BROKERS):
        await world.stop(number)


async def test_a_running_broker_ends_when_its_tree_goes_back() -> None:
    """As after a restore under a session that the copy still has."""
    world = World()
    await world.start(0)
    await world.hand_out(0)
    tree = world.server.clients[0]
    node = await tree.read(PATH)
    await tree.write(PATH, ProducerIdBlock(0, 0, 0).encode(), node.version)
    await turns()
    assert world.places[0].is_refused
    await world.stop(0)


async def test_a_claim_is_refused_that_another_broker_knows_to_be_old() -> None:
    """Its own data directory may be new, and know nothing."""
    world = World()
    await world.start(0)
    for _ in range(3):
        await world.hand_out(0)
    world.places[0].watch._seen._tree = world.server.connect()
    world.server.nodes = copy.deepcopy(world.copies[0][0])
    place = Place(world, 1)
    world.places[1] = place
    await world.start(1)
    with pytest.raises(ProducerIdBlockError, match=r"broker 0 has seen|old copy"):
        await place.ids.wait_for_producer_id()
    await world.stop(0)
    await world.stop(1)


async def test_a_reading_that_a_claim_has_overtaken_shows_no_old_copy() -> None:
    """A reading may be older than what was noted meanwhile; a broker ended at its start because of that."""
    tree = World().server.connect()
    seen = SeenTree(tree, 1, is_marked=True)
    await seen.prepare()
    await seen.note(is_new=True)
    go_on = asyncio.Event()
    read_many = tree.read_many

    async def held(paths: Sequence[str]) -> list[Node | None]:
        found = await read_many(paths)
        await go_on.wait()
        return found

    tree.read_many = held  # type: ignore[method-assign]
    overtaken = [asyncio.create_task(seen.read()), asyncio.create_task(seen.note(is_new=True))]
    await turns()
    tree.read_many = read_many  # type: ignore[method-assign]
    await ProducerIds(tree, 1, seen=seen).start()
    last_id = seen.last_id
    go_on.set()
    await asyncio.gather(*overtaken)
    assert seen.last_id == seen.saved_last_id == last_id


async def test_a_broker_of_an_earlier_release_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ids are handed out, and the others note them; one line says of whom they are not certain, and until when."""
    world = World()
    world.old_releases = {2}
    await world.start_all(0)
    with caplog.at_level(logging.INFO):
        caplog.clear()
        for _ in range(3):
            await world.hand_out(0)
            await world.hand_out(1)
        said = [one for one in caplog.records if "broker 2" in one.getMessage()]
    assert [one.levelno for one in said] == [logging.WARNING] * 2, "once by each of the others"
    assert "is of an earlier release, and notes no producer ids" in said[0].getMessage()
    first, second, _ = world.places
    assert first.disk.last_id == second.disk.last_id
    for place in world.places:
        await place.stop()
