"""kazoo's errors in the tree's terms: refusals, which changed nothing, and unknown outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kazoo import exceptions as kazoo_errors

from echoless.broker.tree.node_tree import (
    BadVersionError,
    ConnectionLostError,
    CoordinationError,
    EphemeralParentError,
    MultiFailedError,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
)


class AccessDeniedError(NodeError):
    """The node belongs to other credentials than ours (`zookeeper_digest`)."""


_REFUSALS: Final[dict[type[Exception], tuple[type[NodeError], str]]] = {
    kazoo_errors.NoNodeError: (NoNodeError, "no such node"),
    kazoo_errors.NodeExistsError: (NodeExistsError, "exists already"),
    kazoo_errors.BadVersionError: (BadVersionError, "has another version"),
    kazoo_errors.NotEmptyError: (NotEmptyError, "has children"),
    kazoo_errors.NoChildrenForEphemeralsError: (EphemeralParentError, "its parent is ephemeral"),
    kazoo_errors.NoAuthError: (AccessDeniedError, "ZooKeeper denies access"),
    kazoo_errors.InvalidACLError: (NodeError, "ZooKeeper knows no credentials of ours"),
    kazoo_errors.BadArgumentsError: (NodeError, "ZooKeeper does not take the path"),
    kazoo_errors.QuotaExceededError: (NodeError, "the quota is used up"),
}
"""Server errors that mean nothing was changed. After any other the outcome is unknown."""
_ENDINGS: Final = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.SessionExpiredError,
    kazoo_errors.AuthFailedError,
)
"""Errors that mean the connection, or the session, is gone already."""


def is_unforeseen(error: Exception) -> bool:
    """Whether it is neither a refusal nor the end of the connection."""
    return type(error) not in _REFUSALS and not isinstance(error, _ENDINGS)


def translated(path: str, error: Exception) -> CoordinationError:
    """A `NodeError` if the server refused, otherwise a `ConnectionLostError`."""
    refusal, message = _REFUSALS.get(type(error), (None, ""))
    if refusal is not None:
        return refusal(path, message)
    return ConnectionLostError(f"{path}: {error!r}")


def error_in(operations: Sequence[Operation], results: Sequence[Any]) -> CoordinationError | None:
    """Why a multi-operation failed; None if it did not."""
    for index, (operation, result) in enumerate(zip(operations, results, strict=True)):
        # Those before the failed one were rolled back, those after it were not tried.
        if isinstance(result, Exception) and not isinstance(result, kazoo_errors.RolledBackError):
            cause = translated(operation.path, result)
            return MultiFailedError(index, cause) if isinstance(cause, NodeError) else cause
    return None
