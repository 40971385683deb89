"""Reading the admin documents of the other brokers, so that one console shows the whole cluster.

A broker asks another one over the native port, where brokers already know each other (TLS, SASL, and with an
authorizer ClusterAction), and names the principal that it asks for: the other one shows what that principal may see.
So no token and no address of an admin port leaves its broker. Nothing can be changed this way: a client that reaches a
native port without log-ins would then be as good as an operator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.admin.answer import json_text
from echoless.broker.admin.callers import Caller, caller_of
from echoless.broker.admin.query import INT32_MAX, read_optional
from echoless.broker.admin.readings import Document, Readings, rows_of
from echoless.broker.admin.refusal import RefusalError
from echoless.broker.authentication.admin_tokens import Role
from echoless.broker.config.listener_names import ADMIN
from echoless.broker.config.names import Authorizer
from echoless.broker.network.turns import ADMIN_PORT, for_client
from echoless.broker.replication.peers import PeerError
from echoless.protocol.errors import DecodeError, KafkaError
from echoless.protocol.native.admin_read import AdminRead, read_admin_answer

if TYPE_CHECKING:
    from aiohttp import web

    from echoless.broker.admin.view import BrokerView
    from echoless.broker.config.loading import Config

ASK_TIMEOUT_S: Final = 3.0
_NAMES: Final = {
    "group": {"group"},
    "listener": {"listener"},
    "producers": {"topic", "partition"},
}
"""The parts of the path that a document is about: over HTTP the path itself has them."""


async def ask_peer(
    broker: BrokerView,
    broker_id: int,
    name: str,
    caller: Caller,
    *,
    query: Mapping[str, str],
    names: Mapping[str, str],
) -> Document:
    """The document of that name on another broker. Raises `RefusalError`."""
    message = AdminRead(
        name=name,
        query={key: value for key, value in query.items() if key != "broker"},
        names=dict(names),
        principal=caller.principal,
        address=caller.address,
        may_change=caller.role is Role.CHANGE,
    )
    try:
        answer = await broker.membership.ask(
            broker_id, message.to_message(), timeout_s=ASK_TIMEOUT_S
        )
        status, text = read_admin_answer(answer)
        document: Document = await for_client(ADMIN_PORT, partial(json.loads, text))
    except (PeerError, KafkaError, DecodeError, ValueError) as error:
        raise RefusalError(HTTPStatus.BAD_GATEWAY, str(error)) from error
    if status != HTTPStatus.OK:
        raise RefusalError(HTTPStatus(status), str(document.get("error", "")))
    return document


async def read_elsewhere(broker: BrokerView, request: web.Request, name: str) -> Document | None:
    """The document of the broker that the query names; None if that is this one, or none is named."""
    broker_id = read_optional(request.query, "broker", INT32_MAX)
    if broker_id in {None, broker.config.broker_id}:
        return None
    assert broker_id is not None
    caller = caller_of(request)
    return await ask_peer(
        broker, broker_id, name, caller, query=request.query, names=request.match_info
    )


async def answer_peer(broker: BrokerView, message: AdminRead) -> tuple[int, str]:
    """The answer to another broker: a status, and a document or the reason as JSON."""
    refused = refusal(broker.config)
    if refused is not None:
        return HTTPStatus.FORBIDDEN, json.dumps({"error": refused})
    role = Role.CHANGE if message.may_change else Role.READ
    host = message.address.rpartition(":")[0]
    caller = Caller(host, message.address, message.principal, role, broker.access)
    read = Readings(broker).for_peers.get(message.name)
    if read is None:
        text = f"broker {broker.config.broker_id} has no document {message.name!r}"
        return HTTPStatus.NOT_FOUND, json.dumps({"error": text})
    missing = _NAMES.get(message.name, set()) - message.names.keys()
    if missing:
        text = f"{message.name}: takes the names {', '.join(sorted(missing))}"
        return HTTPStatus.BAD_REQUEST, json.dumps({"error": text})
    try:
        document = await read(caller, message.query, message.names)
    except RefusalError as error:
        return error.status, json.dumps({"error": error.text})
    return HTTPStatus.OK, await _encoded(document)


async def _encoded(document: Mapping[str, Any]) -> str:
    work = partial(json_text, document)
    return work() if rows_of(dict(document)) < 100 else await for_client(ADMIN_PORT, work)


def refusal(config: Config) -> str | None:
    """Why this broker shows the others nothing: its native port must not tell what its admin port keeps.

    With an authorizer, only brokers may ask (ClusterAction), and rights decide what they are shown.
    """
    if config.authorizer is not Authorizer.NONE:
        return None
    prefix = f"broker {config.broker_id} shows other brokers nothing: "
    remedy = "; authorizer=acl tells brokers from clients"
    if config.admin_token_file is not None or config.security_protocol(ADMIN).is_encrypted:
        return f"{prefix}its admin port asks who is there, its native port does not{remedy}"
    if config.admin_listen.is_loopback and not config.native_listen.is_loopback:
        return (
            f"{prefix}its admin port is for its own machine, its native port is not{remedy}, and "
            "admin_insecure=true with an address in admin_listen opens the admin port as well"
        )
    return None
