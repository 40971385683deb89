"""Binds producer ids to the principals that obtain them (`protocol/bound_ids.py`).

The tags depend on a secret in the tree, the same on every broker and for ever: no one can look for a name whose tag is
that of another. Ids without a tag, from before the binding was turned on, are everyone's.
"""

from __future__ import annotations

import functools
import secrets
from typing import Final

from echoless.broker.tree.node_tree import NodeExistsError, NodeTree, ensure_paths, parent_of
from echoless.protocol.bound_ids import NUMBER_END, UNBOUND, principal_tag, tag_of, tagged
from echoless.protocol.dedup import Reject
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.leases import LEASED_ID_MIN

SECRET: Final = "/config/producer_id_binding"  # noqa: S105 - the node's path
_TAGS_KEPT: Final = 10_000


class ProducerBinding:
    """Tells whose producer ids are."""

    def __init__(self, secret: bytes) -> None:
        self._tag = functools.lru_cache(_TAGS_KEPT)(functools.partial(principal_tag, secret))

    @classmethod
    async def open(cls, tree: NodeTree) -> ProducerBinding:
        """Reads the secret, or makes it. Raises `CoordinationError`."""
        secret = secrets.token_hex().encode()
        await ensure_paths(tree, [parent_of(SECRET)])
        try:
            await tree.create(SECRET, secret)
        except NodeExistsError:
            secret = (await tree.read(SECRET)).data
        return cls(secret)

    def bound(self, producer_id: int, principal: str) -> int:
        """The id as this principal gets it. Raises `KafkaError` if its number is too large."""
        if producer_id % LEASED_ID_MIN >= NUMBER_END:
            message = f"producer id {producer_id} is too large to be bound to a principal"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        return tagged(producer_id, self._tag(principal))

    def refusal(self, producer_id: int, principal: str) -> Reject | None:
        """The reason why the principal may not use the id; None if it may."""
        tag = tag_of(producer_id)
        if tag in {UNBOUND, self._tag(principal)}:
            return None
        return Reject(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"producer id {producer_id} was obtained by another principal than {principal}",
        )
