"""The callers of the admin port, and whether each may: by bearer token or client certificate.

The port asks for one of them if there are tokens (`admin_token_file`), or if TLS requires certificates of its
clients; otherwise it is open, which `serve` allows only on loopback unless configured otherwise (`admin_insecure`).
Each change, done or refused, is a line of the log with its caller. `OPEN_PATHS` are answered in any case, to
a stranger with the status alone.

If the broker has an authorizer, a caller sees the topics that its principal may describe, and needs the same
rights for the rest as a Kafka client: otherwise the port would be a way around every ACL.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from echoless.broker.admin.console_files import is_console, wants_page
from echoless.broker.admin.protocol import HttpProtocol
from echoless.broker.admin.refusal import RefusalError
from echoless.broker.authentication.admin_tokens import Role, Token, Tokens
from echoless.broker.decisions.events import TransactionStep
from echoless.broker.limited_log import LimitedLog
from echoless.broker.network.request import ANONYMOUS, Peer
from echoless.protocol.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from echoless.broker.admin.view import BrokerView
    from echoless.broker.authorization.access import Access
    from echoless.broker.decisions.events import Event

OPEN_PATHS: Final = frozenset({"/health", "/ready"})
"""The paths that orchestration asks for, which has no token."""
_READING: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
_LOGGED_MAX: Final = 2000
"""Characters of a change that are logged."""
_MISSING: Final = "Authorization: takes Bearer and a token of admin_token_file"

logger: Final = logging.getLogger(__name__)
limited: Final = LimitedLog(logger)


class Caller:
    """The sender of one request."""

    tokens: Tokens | None = None
    token: Token | None = None
    """The token that it has shown, one of `tokens`."""

    def __init__(
        self, host: str, address: str, principal: str, role: Role | None, access: Access | None
    ) -> None:
        """`role` is None for a stranger, who may ask for `OPEN_PATHS` only."""
        self.host = host
        self.address = address
        self.principal = principal
        self.role = role
        self._rights = (
            None if access is None else access.rights(Peer(0, address, principal=principal))
        )

    @classmethod
    def of(
        cls, request: web.Request, principal: str, role: Role | None, access: Access | None
    ) -> Self:
        """The sender of a request that came over HTTP."""
        host, port = _peername(request)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return cls(host, address, principal, role, access)

    @property
    def is_stranger(self) -> bool:
        """Whether nothing is known of it, on a port where that matters."""
        return self.role is None

    def document(self) -> dict[str, Any]:
        """The caller's name, and whether it may change anything, for the console."""
        return {"principal": self.principal, "may_change": self.role is Role.CHANGE}

    async def is_let_in(self) -> bool:
        """Whether the token that it has shown would still let it in."""
        return self.tokens is None or self.token is None or await self.tokens.has(self.token)

    def check_may_change(self) -> None:
        """Raises `RefusalError` if it may only read."""
        if self.role is not Role.CHANGE:
            raise RefusalError(
                HTTPStatus.FORBIDDEN, f"the token of {self.principal} is for reading only"
            )

    def may_describe(self, topic: str) -> bool:
        """Whether it may see this topic."""
        rights = self._rights
        return rights is None or rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)

    def may_read(self, topic: str) -> bool:
        """Whether it may see the records of this topic."""
        rights = self._rights
        return rights is None or rights.may(AclOperation.READ, ResourceType.TOPIC, topic)

    def may_describe_group(self, group_id: str) -> bool:
        """Whether it may see this consumer group."""
        rights = self._rights
        return rights is None or rights.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)

    def may_describe_transactional_id(self, name: str) -> bool:
        """Whether it may see this transactional id."""
        rights, kind = self._rights, ResourceType.TRANSACTIONAL_ID
        return rights is None or rights.may(AclOperation.DESCRIBE, kind, name)

    def may_see(self, event: Event) -> bool:
        """Whether it may see all topics of an event; for an event without any: the cluster."""
        rights = self._rights
        if rights is None:
            return True
        topics = {
            topic for _producer_id, topic, _partition in event.subjects() if topic is not None
        }
        if isinstance(event, TransactionStep) and event.transactional_id:
            may_see = self.may_describe_transactional_id(event.transactional_id)
            return may_see and all(map(self.may_describe, topics))
        if not topics:
            return rights.may_with_cluster(AclOperation.DESCRIBE)
        return all(map(self.may_describe, topics))

    def require_topic(self, topic: str) -> None:
        """Raises `RefusalError` if it may not see this topic, whether that exists or not."""
        if not self.may_describe(topic):
            raise self._denied("Describe on this topic")

    def require_group(self, group_id: str) -> None:
        """Raises `RefusalError` if it may not see this group, whether that exists or not."""
        if not self.may_describe_group(group_id):
            raise self._denied("Describe on this group")

    def require_transactional_id(self, name: str) -> None:
        """Raises `RefusalError` if it may not see this transactional id, whether that exists or not."""
        if not self.may_describe_transactional_id(name):
            raise self._denied("Describe on this transactional id")

    def require_cluster(self, operation: AclOperation) -> None:
        """Raises `RefusalError` if it may not do this with the cluster."""
        if self._rights is not None and not self._rights.may_with_cluster(operation):
            raise self._denied(f"{operation.name.title()} on the cluster")

    def _denied(self, right: str) -> RefusalError:
        return RefusalError(
            HTTPStatus.FORBIDDEN, f"ACLs do not allow {self.principal} {right}, which this needs"
        )


_CALLER: Final = web.RequestKey("caller", Caller)
_CHANGE: Final = web.RequestKey("change", str)


def caller_of(request: web.Request) -> Caller:
    """The sender of a request that `authenticate` has let through."""
    return request[_CALLER]


def note_change(request: web.Request, what: str) -> None:
    """Says what the request changes, for the log: text without line breaks, such as JSON."""
    request[_CHANGE] = what


def authenticate(broker: BrokerView) -> Middleware:
    """The middleware that refuses strangers, and changes by callers who may only read; logs all changes."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[_CALLER] = caller = await _identify(request, broker)
        if request.method in _READING:
            return await handler(request)
        try:
            caller.check_may_change()
            caller.require_cluster(AclOperation.ALTER)
            response = await handler(request)
        except RefusalError as error:
            _log_refusal(request, caller, error)
            raise
        if response.status >= HTTPStatus.BAD_REQUEST:  # such as 503 while the broker starts
            return response
        logger.info(
            "a change by %s from %s: %s %s %s",
            *(caller.principal, caller.address, request.method, _path(request)),
            request.get(_CHANGE, "")[:_LOGGED_MAX],
        )
        return response

    return check


async def _identify(request: web.Request, broker: BrokerView) -> Caller:
    protocol, token = request.protocol, None
    principal = protocol.principal if isinstance(protocol, HttpProtocol) else ANONYMOUS
    tokens = broker.admin_tokens
    if tokens is not None and (given := request.headers.get(hdrs.AUTHORIZATION)) is not None:
        scheme, _, secret = given.partition(" ")
        token = await tokens.find(secret.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            raise _unauthorized(request, f"{_MISSING}, not what was given")
    if token is not None:
        caller = Caller.of(request, token.principal, token.role, broker.access)
        caller.tokens, caller.token = tokens, token
        return caller
    if tokens is None or principal != ANONYMOUS:
        return Caller.of(request, principal, Role.CHANGE, broker.access)
    if _is_open(request) and request.method in _READING:
        return Caller.of(request, principal, None, None)
    raise _unauthorized(request, _MISSING)


def _is_open(request: web.Request) -> bool:
    """Whether it is answered to strangers: a browser loads the console before its user can type a token."""
    path = request.path
    return path in OPEN_PATHS or is_console(path) or (path == "/" and wants_page(request))


def _unauthorized(request: web.Request, text: str) -> RefusalError:
    caller = Caller.of(request, ANONYMOUS, None, None)
    error = RefusalError(HTTPStatus.UNAUTHORIZED, text, {hdrs.WWW_AUTHENTICATE: "Bearer"})
    _log_refusal(request, caller, error)
    return error


def _log_refusal(request: web.Request, caller: Caller, error: RefusalError) -> None:
    limited.log(
        logging.WARNING,
        caller.host,
        "refused to %s from %s: %s %s: %d %s",
        *(caller.principal, caller.address, request.method, _path(request)),
        *(error.status, ascii(error.text)),
    )


def _path(request: web.Request) -> str:
    """The path as it was sent, in printable ASCII."""
    return ascii(request.raw_path[:_LOGGED_MAX])[1:-1]


def _peername(request: web.Request) -> tuple[str, int]:
    found = None if request.transport is None else request.transport.get_extra_info("peername")
    host, port, *_ = found or (request.remote or "?", 0)
    return str(host), int(port)
