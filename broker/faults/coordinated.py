"""The knowledge of this broker's coordinators about the groups and transactions that a request names, for rules.

Knows nothing of those that another broker coordinates: rules about states are set on the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from echoless.broker.handlers.transaction_rows import STATE_NAMES
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import TransactionStatus

if TYPE_CHECKING:
    from echoless.broker.faults.match import Match, RequestFacts
    from echoless.broker.services import Services

_NO_GROUP: Final = "Dead"
"""The state of a group that there is not, as DescribeGroups names it."""


class CoordinatedStates:
    """Groups and transactions of one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def holds(self, match: Match, facts: RequestFacts) -> bool:
        """Whether a group and a transaction that the request names are in the states that a rule wants."""
        groups = facts.groups if match.group is None else (match.group,)
        ids = (
            facts.transactional_ids if match.transactional_id is None else (match.transactional_id,)
        )
        return (
            match.group_state is None
            or any(self._group_state(one) == match.group_state for one in groups)
        ) and (
            match.transaction_state is None
            or any(self._transaction_state(one) == match.transaction_state for one in ids)
        )

    def has_member(self, group: str, client_id: str) -> bool | None:
        """Whether the group has a member of this client; None if this broker does not know."""
        shard = self._services.groups.shard_of(group)
        if shard is None or shard.coordinator is None:
            return None
        return bool(shard.coordinator.sessions_of(group, client_id))

    def open_transaction(self, transactional_id: str) -> tuple[int, int, int] | None:
        """Producer id, epoch and start of the transaction that is open; None if none is, or it is not known."""
        state = self._services.transactions.look_at(transactional_id)
        if isinstance(state, ErrorCode) or state.value is None:
            return None
        value = state.value
        if value.status is not TransactionStatus.ONGOING:
            return None
        return value.producer_id, value.producer_epoch, value.start_ms

    def _group_state(self, group: str) -> str | None:
        shard = self._services.groups.shard_of(group)
        if shard is None or shard.coordinator is None:
            return None
        return shard.coordinator.state_name(group) or _NO_GROUP

    def _transaction_state(self, transactional_id: str) -> str | None:
        state = self._services.transactions.look_at(transactional_id)
        if isinstance(state, ErrorCode) or state.value is None:
            return None
        return STATE_NAMES[state.value.status]
