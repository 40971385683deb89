"""The cluster's ACLs: read from the tree, followed as anyone changes them, and changed.

Kafka announces a change of a resource's ACLs by a sequential node, which names the resource; a broker that
follows reads the resource again. A Kafka broker and an Echoless broker on one tree obey each other's
changes. Announcements can be lost, with a session or because their writer died before it wrote them. So
everything is listed again when a connection is new, and once a minute.

A node that cannot be read closes its resource to everyone but super users, until it can be read: it may
hold a denial. While there is no connection, what was read last stays in force, as in Kafka.

Invariant: a change made here is in `acls` before the caller learns of its success.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Final

from echoless.broker.authorization.acl_nodes import (
    CHANGES,
    AclChangeError,
    AclDataError,
    acl_path,
    change_prefix,
    decode_change,
    decode_entries,
    encode_change,
    encode_entries,
    standing_paths,
    type_path,
)
from echoless.broker.tree.node_tree import (
    BadVersionError,
    ConnectionLostError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    SessionState,
    ensure_paths,
)
from echoless.broker.tree.refresher import Refresher
from echoless.protocol.acl import (
    NO_ENTRIES,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclOperation,
    Acls,
    Entries,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

if TYPE_CHECKING:
    from echoless.broker.tree.node_tree import Cancel, Node, NodeTree

LIST_INTERVAL_S: Final = 60.0
"""The longest time for which a lost announcement can go unnoticed."""
ANNOUNCEMENT_AGE_S: Final = 15 * 60.0
"""The time announcements are kept, as in Kafka, counted from when this broker first saw them."""
ATTEMPTS_MAX: Final = 10
"""Attempts at a change that others, or a lost connection, get in the way of."""
_RETRY_S: Final = (0.1, 0.15)
_READ_AT_ONCE: Final = 200
REMOVED_AT_ONCE: Final = 200
"""Old announcements that one round removes; it causes another round."""
_CLOSED: Final = frozenset({Entry(WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, Permission.DENY)})
"""The entries of a node that cannot be read."""

logger = logging.getLogger(__name__)

Change = Callable[[Entries], Entries]


class AclStore:
    """The ACLs in one tree."""

    def __init__(self, tree: NodeTree, rng: Random, changed: Callable[[], None]) -> None:
        self.acls = Acls()
        self._tree = tree
        self._rng = rng
        self._changed = changed
        """Called after each change of `acls`."""
        self._turn = asyncio.Lock()
        """Held from a read of nodes until `acls` has what was read: no older read can follow."""
        self._first_seen: dict[str, float] = {}
        """The announcements that there are, with the loop's time at which each was first seen."""
        self._is_stale = True
        """Whether everything has to be listed again."""
        self._refresher = Refresher("ACLs", self._refresh)
        self._updates: set[asyncio.Future[tuple[Entries, Entries]]] = set()
        self._cancels: list[Cancel] = []
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Reads all ACLs, and follows them from then on. Raises `CoordinationError`."""
        await ensure_paths(self._tree, standing_paths())
        self._cancels.append(self._tree.on_session(self._session_changed))
        for path in CHANGES.values():
            cancel = await self._tree.watch_children(path, lambda _: self._refresher.ask())
            self._cancels.append(cancel)
        await self._refresh()
        self._refresher.start()
        self._plan_next_listing()

    async def close(self) -> None:
        """Follows no longer."""
        for cancel in self._cancels:
            cancel()
        if self._timer is not None:
            self._timer.cancel()
        await self._refresher.close()
        for update in self._updates:
            update.cancel()
        await asyncio.gather(*self._updates, return_exceptions=True)

    async def list_once(self) -> None:
        """Reads all ACLs without following them: for a command. Raises `CoordinationError`."""
        await ensure_paths(self._tree, standing_paths())
        await self._list_all()

    async def update(self, pattern: Pattern, change: Change) -> tuple[Entries, Entries]:
        """Changes the entries of a pattern; returns those before and after. Raises `AclChangeError`.

        `change` may be called several times. Without a difference nothing is written or announced.
        """
        update = asyncio.ensure_future(self._update(pattern, change))
        self._updates.add(update)
        update.add_done_callback(self._updates.discard)
        # The client may disconnect; a change that was written is announced nevertheless.
        return await asyncio.shield(update)

    # Changes

    async def _update(self, pattern: Pattern, change: Change) -> tuple[Entries, Entries]:
        async with self._turn:
            before, after, is_written = await self._write(pattern, change)
            self._put(pattern, after)
            if is_written:
                await self._announce(pattern)
        return before, after

    async def _write(self, pattern: Pattern, change: Change) -> tuple[Entries, Entries, bool]:
        """The entries before and after, and whether there is something to announce.

        A change that a lost answer leaves in doubt is tried again: it changes nothing if it was made.
        """
        first, is_written, problem = None, False, ""
        for attempt in range(ATTEMPTS_MAX):
            await self._pause(attempt)
            is_sent = False
            try:
                (node,) = await self._tree.read_many([acl_path(pattern)])
                before = NO_ENTRIES if node is None else _decoded_for_change(pattern, node)
                first = before if first is None or not is_written else first
                after = change(before)
                if after == before:
                    return first, after, is_written
                is_sent = True
                await self._write_once(pattern, node, after)
            except (BadVersionError, NodeExistsError, NoNodeError) as lost_race:
                problem = str(lost_race)
            except ConnectionLostError as lost_answer:
                is_written, problem = is_written or is_sent, str(lost_answer)
            except CoordinationError as refused:
                raise AclChangeError(f"the ACLs of {_described(pattern)}: {refused}") from refused
            else:
                return first, after, True
        raise AclChangeError(f"the ACLs of {_described(pattern)} may not be changed: {problem}")

    async def _pause(self, attempt: int) -> None:
        """Waits between two attempts, so that rivals do not stay in step."""
        if attempt:
            await asyncio.sleep(self._rng.uniform(*_RETRY_S))

    async def _write_once(self, pattern: Pattern, node: Node | None, after: Entries) -> None:
        path = acl_path(pattern)
        if node is None:
            await self._tree.create(path, encode_entries(after))
        elif after:
            await self._tree.write(path, encode_entries(after), node.version)
        else:
            await self._tree.delete(path, node.version)

    async def _announce(self, pattern: Pattern) -> None:
        """Writes the node that brokers watch for. A lost answer may leave two, which is harmless."""
        problem: CoordinationError | None = None
        for attempt in range(ATTEMPTS_MAX):
            await self._pause(attempt)
            try:
                await self._tree.create_sequential(change_prefix(pattern), encode_change(pattern))
            except CoordinationError as error:
                problem = error
            else:
                return
        raise AclChangeError(
            f"the ACLs of {_described(pattern)} are changed, but other brokers cannot be notified "
            f"({problem}): Echoless brokers notice within a minute, Kafka brokers do not"
        )

    # Following

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._list_soon()

    def _list_soon(self) -> None:
        self._is_stale = True
        self._refresher.ask()

    def _plan_next_listing(self) -> None:
        def list_again() -> None:
            self._list_soon()
            self._plan_next_listing()

        self._timer = asyncio.get_running_loop().call_later(LIST_INTERVAL_S, list_again)

    async def _refresh(self) -> None:
        async with self._turn:
            new = await self._new_announcements()
            changed = await self._announced(new)
            if self._is_stale or changed is None:
                self._is_stale = True
                await self._list_all()
                self._is_stale = False
            else:
                await self._read_again(changed)
            self._first_seen |= new
        await self._remove_old_announcements()

    async def _new_announcements(self) -> dict[str, float]:
        """The announcements not seen before; forgets those that are gone."""
        now = asyncio.get_running_loop().time()
        there = {
            f"{parent}/{name}": now
            for parent in CHANGES.values()
            for name in await self._tree.children(parent)
        }
        self._first_seen = {path: seen for path, seen in self._first_seen.items() if path in there}
        return {path: now for path in there if path not in self._first_seen}

    async def _announced(self, new: Iterable[str]) -> set[Pattern] | None:
        """The patterns that these announcements name; None if one of them is not readable."""
        patterns: set[Pattern] = set()
        paths = list(new)
        if self._is_stale:
            return patterns
        for path, node in zip(paths, await self._tree.read_many(paths), strict=True):
            if node is None:
                return None
            pattern_type = next(one for one in PatternType if path.startswith(f"{CHANGES[one]}/"))
            try:
                patterns.add(decode_change(pattern_type, node.data))
            except AclDataError as error:
                logger.warning("%s: %s; all ACLs are read again", path, error)
                return None
        return patterns

    async def _read_again(self, patterns: Iterable[Pattern]) -> None:
        wanted = list(patterns)
        nodes = await self._tree.read_many([acl_path(pattern) for pattern in wanted])
        for pattern, node in zip(wanted, nodes, strict=True):
            self._put(pattern, NO_ENTRIES if node is None else _decoded(pattern, node))

    async def _list_all(self) -> None:
        found: dict[Pattern, Entries] = {}
        for resource_type in ResourceType:
            for pattern_type in PatternType:
                names = await self._tree.children(type_path(resource_type, pattern_type))
                patterns = [Pattern(resource_type, pattern_type, name) for name in names]
                for start in range(0, len(patterns), _READ_AT_ONCE):
                    piece = patterns[start : start + _READ_AT_ONCE]
                    nodes = await self._tree.read_many(list(map(acl_path, piece)))
                    found |= {
                        pattern: _decoded(pattern, node)
                        for pattern, node in zip(piece, nodes, strict=True)
                        if node is not None
                    }
                    await asyncio.sleep(0)
        for number, pattern in enumerate({*self.acls.patterns(), *found}, 1):
            self._put(pattern, found.get(pattern, NO_ENTRIES))
            if number % _READ_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _remove_old_announcements(self) -> None:
        """Removes some of them; outside `_turn`, since a change must not wait for so many round trips."""
        eldest = asyncio.get_running_loop().time() - ANNOUNCEMENT_AGE_S
        old = (path for path, seen in self._first_seen.items() if seen < eldest)
        for path in list(islice(old, REMOVED_AT_ONCE)):
            with contextlib.suppress(NoNodeError):
                await self._tree.delete(path)
            del self._first_seen[path]

    def _put(self, pattern: Pattern, entries: Entries) -> None:
        if self.acls.get(pattern) != entries:
            self.acls.put(pattern, entries)
            self._changed()


def _decoded(pattern: Pattern, node: Node) -> Entries:
    """The entries in a node; if it cannot be read, one that denies everything to everyone."""
    try:
        return decode_entries(node.data)
    except AclDataError as error:
        logger.error(  # noqa: TRY400 - the data is at fault, and is shown
            "%s holds %s: %r; %s is closed to everyone but super users until the node is mended or "
            "deleted",
            acl_path(pattern),
            error,
            node.data[:200],
            _described(pattern),
        )
        return _CLOSED


def _decoded_for_change(pattern: Pattern, node: Node) -> Entries:
    """The entries in a node that is to be changed. Raises `AclChangeError` rather than overwrite it."""
    try:
        return decode_entries(node.data)
    except AclDataError as error:
        raise AclChangeError(
            f"{acl_path(pattern)} holds {error}; change it with the release that wrote it, or mend it"
        ) from error


def _described(pattern: Pattern) -> str:
    return f"{pattern.pattern_type.name} {pattern.resource_type.name} {pattern.name!r}".lower()
