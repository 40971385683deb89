"""Binds producer ids to the principals that obtain them (`protocol/bound_ids.py`).

The tags depend on a secret in the tree, the same on every broker and for ever: no one can look for a name whose tag is
that of another. Ids without a tag, from before the binding was turned on, are everyone's.

The producer ids of a transactional id belong to it, not to a principal: any user with Write on it can go on with it. They are of
use only in transactional batches, and these only in requests with the transactional id that the coordinator knows them by. Which one
that is never changes; a broker asks once and remembers the newest.
"""

from __future__ import annotations

import functools
import secrets
from typing import Final

from echoless.broker.tree.node_tree import NodeExistsError, NodeTree, ensure_paths, parent_of
from echoless.protocol.bound_ids import (
    NUMBER_END,
    TRANSACTIONAL,
    UNBOUND,
    principal_tag,
    tag_of,
    tagged,
)
from echoless.protocol.dedup import Reject
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.leases import LEASED_ID_MIN

SECRET: Final = "/config/producer_id_binding"  # noqa: S105 - the node's path
_TAGS_KEPT: Final = 10_000
_WRITERS_KEPT: Final = 10_000


class ProducerBinding:
    """Tells whose producer ids are."""

    def __init__(self, secret: bytes) -> None:
        self._tag = functools.lru_cache(_TAGS_KEPT)(functools.partial(principal_tag, secret))
        self._writers: dict[int, str] = {}
        """Transactional ids by producer id, as their coordinators have confirmed; the oldest confirmation first."""

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
        return _tagged(producer_id, self._tag(principal))

    def bound_to_transactions(self, producer_id: int) -> int:
        """The id as the coordinator of a transactional id gets it. Raises `KafkaError` if its number is too large."""
        return _tagged(producer_id, TRANSACTIONAL)

    def refusal(
        self, producer_id: int, principal: str, *, is_transactional: bool = False
    ) -> Reject | None:
        """The reason why the principal may not use the id in a batch; None if it may.

        Of a transactional batch `is_confirmed` says whether its request may use it.
        """
        tag = tag_of(producer_id)
        if tag == UNBOUND or (is_transactional and tag == TRANSACTIONAL):
            return None
        if tag == self._tag(principal):
            return None
        owner = "a transactional id" if tag == TRANSACTIONAL else "another principal"
        return Reject(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"producer id {producer_id} was obtained by {owner} and is of no use to {principal}",
        )

    def is_confirmed(self, producer_id: int, transactional_id: str) -> bool:
        """Whether a coordinator is known to have said that this is the transactional id of the producer id."""
        return self._writers.get(producer_id) == transactional_id

    def confirm(self, producer_id: int, transactional_id: str) -> None:
        """Remembers that the coordinator of the transactional id knows the producer id."""
        self._writers[producer_id] = transactional_id
        if len(self._writers) > _WRITERS_KEPT:
            del self._writers[next(iter(self._writers))]


def _tagged(producer_id: int, tag: int) -> int:
    if producer_id % LEASED_ID_MIN >= NUMBER_END:
        message = f"producer id {producer_id} is too large to be bound"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
    return tagged(producer_id, tag)
