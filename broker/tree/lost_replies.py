"""Changes whose answer was lost, and a read that shows whether they landed.

`ConnectionLostError` on a change means that the outcome is unknown. All that `commit` changes is
conditional, so a read shows the outcome: the first node that the operations fill with data, and
every node that they overwrite, has exactly our data (and our version), or it does not.

One node would not be enough: a leader that drops a dead follower from an ISR writes the same bytes
as that follower, which withdraws from many ISRs at once. A single node may have been written by
either of them.

Knows nothing of what the operations mean; the first data must be something no one else would write
there (a random topic id), unless all of it is written over something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from echoless.broker.tree.node_tree import (
    Check,
    ConnectionLostError,
    Create,
    Delete,
    MultiFailedError,
    Node,
    NodeTree,
    Operation,
    SetData,
)

ATTEMPTS_MAX: Final = 3


async def commit(tree: NodeTree, operations: Sequence[Operation]) -> None:
    """Makes all operations or none, as `NodeTree.multi`; resolves a lost answer by reading.

    A request may also land late, after the read that did not find it (it was held in a server that
    stalled): then the next attempt is refused, and what it ran into is ours.

    Raises `MultiFailedError`; `ConnectionLostError` when the outcome stays unknown.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            await tree.multi(operations)
        except MultiFailedError:
            if attempt > 1 and await _have_landed(tree, operations):
                return
            raise
        except ConnectionLostError:
            if attempt == ATTEMPTS_MAX:
                raise
            if await _have_landed(tree, operations):
                return
        else:
            return


async def _have_landed(tree: NodeTree, operations: Sequence[Operation]) -> bool:
    """Whether they landed, judged by nodes that are changed exactly once.

    A check leaves no trace, and an empty node does not show who made it.
    """
    changes = [operation for operation in operations if not isinstance(operation, Check)]
    counts = Counter(operation.path for operation in changes)
    once = [change for change in changes if counts[change.path] == 1]
    with_data = (change for change in once if not isinstance(change, Delete) and change.data)
    first = next(with_data, once[0])
    written = [change for change in once if isinstance(change, SetData) and change is not first]
    telling = [first, *written]
    nodes = await tree.read_many([change.path for change in telling])
    return all(map(_is_as_meant, telling, nodes))


def _is_as_meant(change: Create | SetData | Delete, node: Node | None) -> bool:
    match change:
        case Create(_, data):
            return node is not None and node.data == data
        case SetData(_, data, version):
            return node is not None and (node.data, node.version) == (data, version + 1)
        case Delete():
            return node is None
