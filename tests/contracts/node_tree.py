"""The laws of every `NodeTree`. A test class of an implementation inherits them.

The class gives a fixture `tree` (an open, empty tree) and `settle` (returns when every callback that
is due has run).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from echoless.broker.tree.node_tree import (
    ANY_VERSION,
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    EphemeralParentError,
    MultiFailedError,
    NodeExistsError,
    NodeTree,
    NoNodeError,
    NotEmptyError,
    SessionState,
    SetData,
    ensure_paths,
)

Settle = Callable[[], Awaitable[None]]


class NodeTreeContract:
    """Laws for a single client."""

    async def test_a_new_node_has_its_data_and_version_0(self, tree: NodeTree) -> None:
        """A created node has its data, version 0 and no owner."""
        await tree.create("/a", b"data")
        assert await tree.read("/a") == (b"data", 0, 0)

    async def test_a_sequential_node_gets_the_next_number_of_its_parent(
        self, tree: NodeTree
    ) -> None:
        """Names end in ten digits that only grow, whatever the prefix; parents count separately."""
        await ensure_paths(tree, ["/p", "/q"])
        paths = [
            await tree.create_sequential("/p/change_", b"1"),
            await tree.create_sequential("/p/change_", b"2"),
            await tree.create_sequential("/p/other_"),
        ]
        assert paths == ["/p/change_0000000000", "/p/change_0000000001", "/p/other_0000000002"]
        assert await tree.read(paths[1]) == (b"2", 0, 0)
        assert await tree.create_sequential("/q/change_") == "/q/change_0000000000"

    async def test_the_number_of_a_deleted_sequential_node_is_not_given_again(
        self, tree: NodeTree
    ) -> None:
        """Otherwise who remembers the last number would miss a node."""
        await tree.create("/p")
        first = await tree.create_sequential("/p/change_")
        await tree.delete(first)
        assert await tree.create_sequential("/p/change_") > first

    async def test_a_sequential_node_needs_a_parent_that_is_not_ephemeral(
        self, tree: NodeTree
    ) -> None:
        """It is refused as any creation is."""
        with pytest.raises(NoNodeError):
            await tree.create_sequential("/p/change_")
        await tree.create("/e", ephemeral=True)
        with pytest.raises(EphemeralParentError):
            await tree.create_sequential("/e/change_")
        with pytest.raises(ValueError, match="path"):
            await tree.create_sequential("change_")

    async def test_a_sequential_node_is_announced(self, tree: NodeTree, settle: Settle) -> None:
        """The watch of the parent's children fires, as for any new child."""
        calls: list[str] = []
        await tree.create("/p")
        await tree.watch_children("/p", calls.append)
        await tree.create_sequential("/p/change_")
        await settle()
        assert set(calls) == {"/p"}

    async def test_a_write_raises_the_version_by_one(self, tree: NodeTree) -> None:
        """Each write returns the version that the next one must name."""
        await tree.create("/a")
        assert await tree.write("/a", b"1", 0) == 1
        assert await tree.write("/a", b"2", 1) == 2
        assert await tree.read("/a") == (b"2", 2, 0)

    async def test_a_write_of_another_version_changes_nothing(self, tree: NodeTree) -> None:
        """A lost race raises `BadVersionError`, whether the version is too low or too high."""
        await tree.create("/a", b"old")
        for version in (1, 7):
            with pytest.raises(BadVersionError):
                await tree.write("/a", b"new", version)
        assert await tree.read("/a") == (b"old", 0, 0)

    async def test_a_write_of_any_version_always_wins(self, tree: NodeTree) -> None:
        """A version of -1 matches any."""
        await tree.create("/a")
        assert await tree.write("/a", b"1", ANY_VERSION) == 1

    async def test_what_is_missing_is_told(self, tree: NodeTree) -> None:
        """Read, children, write and delete of a missing node raise `NoNodeError`."""
        for call in (
            tree.read("/a"),
            tree.children("/a"),
            tree.write("/a", b"", ANY_VERSION),
            tree.delete("/a"),
        ):
            with pytest.raises(NoNodeError):
                await call

    async def test_a_node_cannot_be_created_twice(self, tree: NodeTree) -> None:
        """The second creation is refused and leaves the first one's data."""
        await tree.create("/a", b"first")
        with pytest.raises(NodeExistsError):
            await tree.create("/a", b"second")
        assert (await tree.read("/a")).data == b"first"

    async def test_a_node_needs_a_parent(self, tree: NodeTree) -> None:
        """Nodes are created from the top down; the error names the node."""
        with pytest.raises(NoNodeError, match="/a/b"):
            await tree.create("/a/b")

    async def test_a_node_with_children_stays(self, tree: NodeTree) -> None:
        """Nodes are deleted from the bottom up."""
        await ensure_paths(tree, ["/a/b"])
        with pytest.raises(NotEmptyError):
            await tree.delete("/a")
        await tree.delete("/a/b")
        await tree.delete("/a")
        assert await tree.read_many(["/a", "/a/b"]) == [None, None]

    async def test_a_delete_of_another_version_changes_nothing(self, tree: NodeTree) -> None:
        """A delete can be conditional."""
        await tree.create("/a")
        with pytest.raises(BadVersionError):
            await tree.delete("/a", 1)
        await tree.delete("/a", 0)
        assert await tree.read_many(["/a"]) == [None]

    async def test_a_node_created_again_starts_at_version_0(self, tree: NodeTree) -> None:
        """Versions start over when a node is created again."""
        await tree.create("/a")
        await tree.write("/a", b"1", 0)
        await tree.delete("/a")
        await tree.create("/a")
        assert (await tree.read("/a")).version == 0

    async def test_children_are_names_in_order(self, tree: NodeTree) -> None:
        """Only the direct children count."""
        await ensure_paths(tree, ["/top/b/x", "/top/a", "/top/c"])
        assert await tree.children("/top") == ["a", "b", "c"]
        assert await tree.children("/top/a") == []

    async def test_read_many_answers_path_for_path(self, tree: NodeTree) -> None:
        """Missing nodes are None at their place, even under missing parents."""
        await tree.create("/a", b"1")
        await tree.create("/b", b"2")
        nodes = await tree.read_many(["/b", "/x/y", "/a"])
        assert [node and node.data for node in nodes] == [b"2", None, b"1"]

    async def test_a_multi_is_done_in_order(self, tree: NodeTree) -> None:
        """A later operation sees what the earlier ones did."""
        await tree.multi(
            [
                Create("/a", b"1"),
                Create("/a/b"),
                SetData("/a", b"2", 0),
                Check("/a", 1),
                Delete("/a/b", 0),
                Create("/c"),
                Delete("/c"),
            ]
        )
        assert await tree.read("/a") == (b"2", 1, 0)
        assert await tree.children("/a") == []
        assert await tree.read_many(["/c"]) == [None]

    async def test_a_failed_multi_changes_nothing(self, tree: NodeTree) -> None:
        """All or nothing; the error says which operation failed, and why."""
        await tree.create("/a", b"old")
        with pytest.raises(MultiFailedError) as failure:
            await tree.multi([SetData("/a", b"new", 0), Create("/b"), Check("/a", 0)])
        assert failure.value.index == 2
        assert isinstance(failure.value.cause, BadVersionError)
        assert await tree.read_many(["/a", "/b"]) == [(b"old", 0, 0), None]

    @pytest.mark.parametrize(
        ("operation", "error"),
        [
            (Create("/a"), NodeExistsError),
            (Create("/x/y"), NoNodeError),
            (SetData("/x", b"", 0), NoNodeError),
            (SetData("/a", b"", 3), BadVersionError),
            (Delete("/a"), NotEmptyError),
            (Delete("/x"), NoNodeError),
            (Check("/x", ANY_VERSION), NoNodeError),
        ],
    )
    async def test_a_multi_names_the_cause(
        self, tree: NodeTree, operation: Create, error: type[Exception]
    ) -> None:
        """Each refusal of a single operation is also one of a multi-operation."""
        await ensure_paths(tree, ["/a/b"])
        with pytest.raises(MultiFailedError) as failure:
            await tree.multi([Check("/a", 0), operation])
        assert (failure.value.index, type(failure.value.cause)) == (1, error)

    async def test_a_check_alone_changes_nothing(self, tree: NodeTree) -> None:
        """It asks the deciding servers; any version matches if only existence matters."""
        await tree.create("/a", b"data")
        await tree.multi([Check("/a", ANY_VERSION)])
        await tree.multi([Check("/a", 0)])
        assert await tree.read("/a") == (b"data", 0, 0)

    async def test_an_ephemeral_node_has_an_owner_and_no_children(self, tree: NodeTree) -> None:
        """The owner is the session that created it."""
        await tree.create("/e", b"mine", ephemeral=True)
        assert await tree.read("/e") == (b"mine", 0, tree.session_id)
        assert tree.session_id != 0
        with pytest.raises(EphemeralParentError):
            await tree.create("/e/child")

    async def test_an_ephemeral_node_is_a_node(self, tree: NodeTree) -> None:
        """It is written, listed and deleted like any other."""
        await tree.create("/e", ephemeral=True)
        assert "e" in await tree.children("/")
        assert await tree.write("/e", b"1", 0) == 1
        await tree.delete("/e", 1)
        assert "e" not in await tree.children("/")

    async def test_a_watch_reports_every_kind_of_change(
        self, tree: NodeTree, settle: Settle
    ) -> None:
        """Creation, writes and deletion each lead to a call, and the watch stays."""
        calls: list[str] = []
        await tree.watch("/a", calls.append)
        for change in (tree.create("/a"), tree.write("/a", b"1", 0), tree.delete("/a")):
            calls.clear()
            await change
            await settle()
            assert set(calls) == {"/a"}

    async def test_a_watch_of_children_reports_comings_and_goings(
        self, tree: NodeTree, settle: Settle
    ) -> None:
        """The set of children is watched, by multi-operations too."""
        calls: list[str] = []
        await tree.create("/a")
        await tree.watch_children("/a", calls.append)
        for change in (
            tree.create("/a/b"),
            tree.multi([Delete("/a/b"), Create("/a/c")]),
            tree.delete("/a/c"),
            tree.delete("/a"),
        ):
            calls.clear()
            await change
            await settle()
            assert set(calls) == {"/a"}

    async def test_a_callback_can_read_the_change(self, tree: NodeTree, settle: Settle) -> None:
        """Once a watch has fired, a read returns the change."""
        seen: list[int] = []
        await tree.create("/a")
        changed: list[str] = []
        await tree.watch("/a", changed.append)
        await tree.write("/a", b"1", 0)
        await settle()
        assert changed
        seen.append((await tree.read("/a")).version)
        assert seen == [1]

    async def test_a_cancelled_watch_is_silent(self, tree: NodeTree, settle: Settle) -> None:
        """Even a call that was due does not come; other watches of the node stay."""
        cancelled: list[str] = []
        kept: list[str] = []
        cancel = await tree.watch("/a", cancelled.append)
        await tree.watch("/a", kept.append)
        await tree.create("/a")
        await settle()
        cancel()
        cancelled.clear()
        kept.clear()
        await tree.write("/a", b"1", 0)
        await settle()
        assert (cancelled, set(kept)) == ([], {"/a"})

    @pytest.mark.parametrize("wrong_path", ["", "a", "/a/", "//a", "/a/../b", "/."])
    async def test_a_path_that_is_none_is_a_bug(self, tree: NodeTree, wrong_path: str) -> None:
        """Paths are absolute and plain; anything else is a bug of the caller."""
        with pytest.raises(ValueError, match="path"):
            await tree.read(wrong_path)
        with pytest.raises(ValueError, match="path"):
            await tree.create(wrong_path)

    async def test_nothing_works_after_the_session(self, tree: NodeTree, settle: Settle) -> None:
        """Closing ends the session: listeners are notified, and calls raise `ConnectionLostError`."""
        states: list[SessionState] = []
        tree.on_session(states.append)
        before = tree.session_state
        await tree.close()
        await settle()
        after = tree.session_state
        assert (before, after) == (SessionState.CONNECTED, SessionState.LOST)
        assert states[-1:] == [SessionState.LOST]
        with pytest.raises(ConnectionLostError):
            await tree.read("/")
        with pytest.raises(ConnectionLostError):
            await tree.create("/a")


class SharedNodeTreeContract:
    """Two clients of one tree: fixtures `tree` and `other`."""

    async def test_only_one_of_two_writers_wins(self, tree: NodeTree, other: NodeTree) -> None:
        """A second write of the same version is refused."""
        await tree.create("/a")
        await tree.write("/a", b"mine", 0)
        with pytest.raises(BadVersionError):
            await other.write("/a", b"theirs", 0)
        assert (await other.read("/a")).data == b"mine"

    async def test_ephemeral_nodes_end_with_their_session(
        self, tree: NodeTree, other: NodeTree, settle: Settle
    ) -> None:
        """The other clients see them go, and are notified; plain nodes stay."""
        gone: list[str] = []
        await other.create("/plain")
        await other.create("/e", ephemeral=True)
        await tree.watch("/e", gone.append)
        await other.close()
        await settle()
        assert await tree.children("/") == ["plain"]
        assert set(gone) == {"/e"}

    async def test_a_watch_hears_of_others(
        self, tree: NodeTree, other: NodeTree, settle: Settle
    ) -> None:
        """Watches report every client's changes."""
        calls: list[str] = []
        await tree.watch("/a", calls.append)
        await other.create("/a")
        await settle()
        assert set(calls) == {"/a"}

    async def test_owners_tell_sessions_apart(self, tree: NodeTree, other: NodeTree) -> None:
        """An ephemeral node names its owner."""
        await tree.create("/e", ephemeral=True)
        assert (await other.read("/e")).owner == tree.session_id != other.session_id
