"""The ACLs in the tree: written once, announced, followed, and healed when an announcement is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from random import Random

import pytest

from echoless.broker.authorization import acl_store
from echoless.broker.authorization.acl_nodes import (
    AclChangeError,
    acl_path,
    change_prefix,
    decode_entries,
    encode_change,
    encode_entries,
)
from echoless.broker.authorization.acl_store import AclStore
from echoless.broker.tree.node_tree import ensure_paths
from echoless.protocol.acl import (
    AclOperation,
    Entries,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree, turns

ORDERS = Pattern(ResourceType.TOPIC, PatternType.LITERAL, "orders")
PREFIX = Pattern(ResourceType.GROUP, PatternType.PREFIXED, "app-")
CHANGES, PREFIX_CHANGES = "/kafka-acl-changes", "/kafka-acl-extended-changes"


def entry(operation: AclOperation, principal: str = "User:alice") -> Entry:
    return Entry(principal, "*", operation, Permission.ALLOW)


READ, WRITE = entry(AclOperation.READ), entry(AclOperation.WRITE)
DENY = Entry("User:bob", "*", AclOperation.ALL, Permission.DENY)


class Site:
    """One broker's store, and how often it said that something changed."""

    def __init__(self, server: MemoryTree) -> None:
        self.tree: MemoryNodeTree = server.connect()
        self.changes = 0
        self.store = AclStore(self.tree, Random(1), self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def add(self, pattern: Pattern, *entries: Entry) -> tuple[Entries, Entries]:
        return await self.store.update(pattern, lambda before: before | frozenset(entries))

    async def remove(self, pattern: Pattern, *entries: Entry) -> tuple[Entries, Entries]:
        return await self.store.update(pattern, lambda before: before - frozenset(entries))


@pytest.fixture
def server() -> MemoryTree:
    return MemoryTree()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_store, "_RETRY_S", (0.0, 0.0))


@pytest.fixture
async def site(server: MemoryTree) -> AsyncIterator[Site]:
    site = Site(server)
    await site.store.start()
    yield site
    await site.store.close()


@pytest.fixture
async def other(server: MemoryTree) -> AsyncIterator[Site]:
    other = Site(server)
    await other.store.start()
    yield other
    await other.store.close()


async def announcements(site: Site) -> list[str]:
    """The announcements, in order."""
    paths = [
        f"{parent}/{name}"
        for parent in (CHANGES, PREFIX_CHANGES)
        for name in await site.tree.children(parent)
    ]
    return [node.data.decode() for node in await site.tree.read_many(paths) if node is not None]


async def stored(site: Site, pattern: Pattern) -> Entries | None:
    (node,) = await site.tree.read_many([acl_path(pattern)])
    return None if node is None else decode_entries(node.data)


async def test_a_start_creates_the_nodes_that_kafka_expects(site: Site) -> None:
    """Every type has its node, in both trees, and so do the announcements."""
    assert "TransactionalId" in await site.tree.children("/kafka-acl")
    assert "Topic" in await site.tree.children("/kafka-acl-extended/prefixed")
    assert await announcements(site) == []


async def test_an_acl_is_stored_announced_and_in_force_before_the_answer(site: Site) -> None:
    """A second time it changes nothing, and is not announced."""
    assert await site.add(ORDERS, READ) == (frozenset(), {READ})
    assert site.store.acls.get(ORDERS) == {READ}
    assert site.changes == 1
    assert await site.add(ORDERS, READ) == ({READ}, {READ})
    assert await stored(site, ORDERS) == {READ}
    assert await announcements(site) == ["TOPIC:orders"]


async def test_entries_are_added_and_removed_one_by_one(site: Site) -> None:
    """The node goes with the last of them; the others stay in force (CVE-2024-27309)."""
    await site.add(ORDERS, READ, WRITE, DENY)
    assert await site.remove(ORDERS, WRITE) == ({READ, WRITE, DENY}, {READ, DENY})
    assert await stored(site, ORDERS) == site.store.acls.get(ORDERS) == {READ, DENY}
    await site.remove(ORDERS, READ, DENY)
    assert await stored(site, ORDERS) is None
    assert site.store.acls.patterns() == []
    assert await announcements(site) == ["TOPIC:orders"] * 3


async def test_others_follow(site: Site, other: Site) -> None:
    """Additions, changes and deletions of both kinds of patterns."""
    for pattern in (ORDERS, PREFIX):
        await site.add(pattern, READ)
        await turns()
        assert other.store.acls.get(pattern) == {READ}
        await site.add(pattern, DENY)
        await turns()
        assert other.store.acls.get(pattern) == {READ, DENY}
        await other.remove(pattern, READ, DENY)
        await turns()
        assert site.store.acls.get(pattern) == frozenset()


async def test_what_was_there_before_the_start_is_read(site: Site, server: MemoryTree) -> None:
    """Without any announcement; more than are read at once."""
    for number in range(450):
        await site.add(ORDERS._replace(name=f"t{number}"), READ)
    late = Site(server)
    await late.store.start()
    assert set(late.store.acls) == set(site.store.acls)
    await late.store.close()


async def test_many_resources_are_put_in_turns(
    server: MemoryTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have a turn after each 50 of them."""
    monkeypatch.setattr(acl_store, "_READ_AT_ONCE", 50)
    tree = server.connect()
    await ensure_paths(tree, ["/kafka-acl/Topic"])
    for number in range(500):
        await tree.create(f"/kafka-acl/Topic/t{number}", encode_entries(frozenset({READ})))
    late, in_turn = Site(server), [0]

    def counted() -> None:
        in_turn[-1] += 1

    async def tick() -> None:
        while True:
            in_turn.append(0)
            await asyncio.sleep(0)

    late.store._changed = counted
    ticker = asyncio.ensure_future(tick())
    await late.store.start()
    ticker.cancel()
    assert (sum(in_turn), max(in_turn)) == (500, 50)
    await late.store.close()


async def test_two_writers_lose_nothing(site: Site, other: Site) -> None:
    """The later one reads again what the earlier one wrote, in each kind of change."""
    site.tree.before_next_change(lambda: other.add(ORDERS, WRITE))  # create against create
    await site.add(ORDERS, READ)
    assert await stored(site, ORDERS) == {READ, WRITE}
    site.tree.before_next_change(lambda: other.remove(ORDERS, WRITE))  # write against write
    await site.add(ORDERS, DENY)
    assert await stored(site, ORDERS) == {READ, DENY}
    site.tree.before_next_change(lambda: other.add(ORDERS, WRITE))  # delete against write
    await site.remove(ORDERS, READ, DENY)
    assert await stored(site, ORDERS) == {WRITE}
    site.tree.before_next_change(lambda: other.remove(ORDERS, WRITE))  # write against delete
    await site.add(ORDERS, READ)
    assert await stored(site, ORDERS) == {READ}
    await turns()
    assert site.store.acls.get(ORDERS) == other.store.acls.get(ORDERS) == {READ}


async def test_a_writer_that_always_loses_gives_up_loudly(site: Site, other: Site) -> None:
    """After ten attempts, and nothing of its own is in force."""
    for number in range(acl_store.ATTEMPTS_MAX):
        rival = entry(AclOperation.READ, f"User:{number}")
        site.tree.before_next_change(lambda rival=rival: other.add(ORDERS, rival))
    with pytest.raises(AclChangeError, match="literal topic 'orders'"):
        await site.add(ORDERS, WRITE)
    await turns()
    assert WRITE not in site.store.acls.get(ORDERS)


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_resolved(site: Site, other: Site, applied: bool) -> None:
    """Whether the change was made or not, it is made once, announced, and followed."""
    site.tree.lose_next_reply(applied=applied)
    before, after = await site.add(ORDERS, READ)
    assert (before, after) == (frozenset(), {READ})
    assert await stored(site, ORDERS) == {READ}
    assert await announcements(site) == ["TOPIC:orders"]
    await turns()
    assert other.store.acls.get(ORDERS) == {READ}


async def test_a_lost_answer_to_an_announcement_may_announce_twice(site: Site, other: Site) -> None:
    """Its writer cannot know; a second reading does no harm."""

    async def lose() -> None:
        site.tree.lose_next_reply(applied=True)

    async def at_the_next_change() -> None:
        site.tree.before_next_change(lose)

    site.tree.before_next_change(at_the_next_change)  # the first is the ACL's own
    await site.add(ORDERS, READ)
    assert await announcements(site) == ["TOPIC:orders"] * 2
    await turns()
    assert other.store.acls.get(ORDERS) == {READ}


async def test_a_change_whose_caller_goes_away_is_announced(site: Site, other: Site) -> None:
    """A client that closes its connection does not leave the others behind."""
    change = asyncio.create_task(site.add(ORDERS, READ))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    change.cancel()
    await turns()
    assert other.store.acls.get(ORDERS) == site.store.acls.get(ORDERS) == {READ}


async def test_a_change_without_announcement_is_found_after_a_while(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is listed again from time to time."""
    listed: list[tuple[float, object]] = []
    loop = asyncio.get_running_loop()
    await site.store.close()
    monkeypatch.setattr(loop, "call_later", lambda delay, call: listed.append((delay, call)))
    await site.store.start()
    await site.tree.create(acl_path(ORDERS), encode_entries(frozenset({READ})))
    await turns()
    assert site.store.acls.get(ORDERS) == frozenset()
    ((delay, list_again),) = listed
    assert delay == acl_store.LIST_INTERVAL_S
    monkeypatch.undo()
    list_again()
    await turns()
    assert site.store.acls.get(ORDERS) == {READ}


async def test_a_lost_session_lists_everything_again(site: Site, server: MemoryTree) -> None:
    """Announcements may have come and gone meanwhile; until then the old ACLs stay in force."""
    await site.add(ORDERS, READ)
    rival = server.connect()
    site.tree.expire_session()
    await turns()
    assert site.store.acls.get(ORDERS) == {READ}
    await rival.delete(acl_path(ORDERS))
    await rival.create(acl_path(PREFIX), encode_entries(frozenset({DENY})))
    site.tree.reconnect()
    await turns()
    assert site.store.acls.get(ORDERS) == frozenset()
    assert site.store.acls.get(PREFIX) == {DENY}


async def test_an_announcement_that_cannot_be_read_lists_everything(site: Site) -> None:
    """Whatever it was about."""
    await site.tree.create(acl_path(PREFIX), encode_entries(frozenset({READ})))
    await site.tree.create_sequential(change_prefix(ORDERS), b"\xff")
    await turns()
    assert site.store.acls.get(PREFIX) == {READ}


@pytest.mark.parametrize("name", ["", "a//b"])
@pytest.mark.parametrize("pattern", [ORDERS, PREFIX])
async def test_an_announcement_that_names_no_path_does_not_end_the_broker(
    site: Site, caplog: pytest.LogCaptureFixture, pattern: Pattern, name: str
) -> None:
    """Any client of the coordinator can write one; it is logged, and the next ones are followed."""
    data = encode_change(pattern._replace(name=name))
    path = await site.tree.create_sequential(change_prefix(pattern), data)
    await turns()
    assert path in caplog.text
    await site.tree.create(acl_path(ORDERS), encode_entries(frozenset({DENY})))
    await site.tree.create_sequential(change_prefix(ORDERS), encode_change(ORDERS))
    await turns()
    assert site.store.acls.get(ORDERS) == {DENY}


@pytest.mark.parametrize("damaged", [b'{"version":1,"acls":[{"operation":"Fly"}]}', b"[" * 100_000])
async def test_a_node_that_cannot_be_read_closes_its_resource(
    site: Site, caplog: pytest.LogCaptureFixture, damaged: bytes
) -> None:
    """It may hold a denial; the log names it, and it is not overwritten."""
    await site.add(ORDERS, READ)
    await site.tree.write(acl_path(ORDERS), damaged, 0)
    with caplog.at_level(logging.ERROR):
        await site.tree.create_sequential(change_prefix(ORDERS), encode_change(ORDERS))
        await turns()
    (closed,) = site.store.acls.get(ORDERS)
    assert (closed.principal, closed.permission) == ("User:*", Permission.DENY)
    assert acl_path(ORDERS) in caplog.text
    with pytest.raises(AclChangeError, match="/kafka-acl/Topic/orders"):
        await site.add(ORDERS, WRITE)
    assert (await site.tree.read(acl_path(ORDERS))).data == damaged


async def test_old_announcements_are_removed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """15 minutes after this broker first saw them."""
    loop = asyncio.get_running_loop()
    await site.add(ORDERS, READ)
    await turns()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + acl_store.ANNOUNCEMENT_AGE_S - 1)
    await site.add(PREFIX, READ)
    await turns()
    assert len(await announcements(site)) == 2
    monkeypatch.setattr(loop, "time", lambda: now + acl_store.ANNOUNCEMENT_AGE_S + 1)
    await site.add(ORDERS, WRITE)
    await turns()
    assert len(await site.tree.children(CHANGES)) == 1
    assert len(await site.tree.children(PREFIX_CHANGES)) == 1


async def test_a_denial_does_not_wait_for_the_removal_of_old_announcements(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each removal is a round trip, and there may be thousands."""
    loop = asyncio.get_running_loop()
    await site.add(ORDERS, READ)
    await turns()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + acl_store.ANNOUNCEMENT_AGE_S + 1)
    is_removing, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold_up() -> None:
        is_removing.set()
        await may_go_on.wait()

    site.tree.before_next_change(hold_up)
    site.store._list_soon()
    await is_removing.wait()
    denial = asyncio.create_task(site.add(ORDERS, DENY))
    await turns()
    assert denial.done()
    assert site.store.acls.get(ORDERS) == {READ, DENY}
    may_go_on.set()
    await turns()
    assert len(await announcements(site)) == 1


async def test_old_announcements_are_removed_some_at_a_time(
    site: Site, server: MemoryTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New ones are read in between; all are gone in the end."""
    loop = asyncio.get_running_loop()
    for _ in range(2 * acl_store.REMOVED_AT_ONCE + 1):
        await site.tree.create_sequential(change_prefix(ORDERS), encode_change(ORDERS))
    await turns()
    await site.store.close()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + acl_store.ANNOUNCEMENT_AGE_S + 1)
    await site.store.start()  # one round, before those that the removals ask for
    assert len(server.nodes.children(CHANGES)) == acl_store.REMOVED_AT_ONCE + 1
    await turns(5 * acl_store.REMOVED_AT_ONCE)
    assert server.nodes.children(CHANGES) == []
