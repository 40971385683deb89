"""An authorizer that denies one right, as a rule says, and allows what the broker's own allows: without one, everything.

It takes the broker's place in the `Services` of a request, so that each API answers as it does to a client whose
right was revoked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from echoless.broker.authorization.access import Access, Rights
from echoless.protocol.acl import AclAuthorizer, AclOperation, ResourceType

if TYPE_CHECKING:
    from echoless.broker.network.request import Peer


class DeniedRight:
    """`Access` for one request."""

    def __init__(
        self, access: Access | None, right: AclOperation, topics: frozenset[str] | None
    ) -> None:
        """`right` may be ALL; `topics` are those that it is denied on, None: it is denied on everything."""
        self.needs_idempotent_write = access is not None and access.needs_idempotent_write
        self._access = access
        self._right = right
        self._topics = topics

    @classmethod
    def instead_of(
        cls, access: Access | None, right: AclOperation, topics: frozenset[str] | None
    ) -> Access:
        """Typed as what it stands in for; only what handlers ask before they admit a client is there."""
        return cast("Access", cls(access, right, topics))

    def rights(self, peer: Peer) -> Rights:
        """Makes rights that the peer does not keep: its next request has its own again."""
        own = None if self._access is None else self._access.rights(peer)
        rule = _DenyingRule(own, self._right, self._topics)
        return Rights(cast("AclAuthorizer", rule), peer.principal, peer.host)


class _DenyingRule:
    """`AclAuthorizer` for one client."""

    def __init__(
        self, own: Rights | None, right: AclOperation, topics: frozenset[str] | None
    ) -> None:
        self._own = own
        self._right = right
        self._topics = topics

    def allows(
        self,
        _principal: str,
        _host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """See `AclAuthorizer`."""
        if self._is_denied(operation) and (
            self._topics is None or (resource_type is ResourceType.TOPIC and name in self._topics)
        ):
            return False
        return self._own is None or self._own.may(operation, resource_type, name)

    def allows_any(
        self, _principal: str, _host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """See `AclAuthorizer`."""
        if self._is_denied(operation) and self._topics is None:
            return False
        return self._own is None or self._own.may_with_any(operation, resource_type)

    def _is_denied(self, operation: AclOperation) -> bool:
        return self._right in {AclOperation.ALL, operation}
