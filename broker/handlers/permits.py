"""Permits: what the requests of each API need, by which the gate denies them or parts of them.

Each API's file has a permit, which it gives to `Served`; only a broker with an authorizer asks it. It
is asked before anything is looked up, so that answers do not tell what exists. An API whose answer leaves
things out, or whose rows are denied with different codes, asks in its handler (`rights_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers.request_topics import topics_of, without
from echoless.broker.network.denial import Denial
from echoless.broker.network.request import Request
from echoless.broker.network.turns import for_client, work_in_turns
from echoless.protocol.acl import CLUSTER_NAME, AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import uuid

    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

Permit = Callable[[Request, "Rights", "Services"], Denial | None]
"""Returns the part of the request that the client may not do; None if it may do all of it."""

_CODES: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def denied(operation: AclOperation, resource_type: ResourceType) -> KafkaError:
    """The error for what ACLs do not allow."""
    what = resource_type.name.lower().replace("_", " ")
    need = f"ACLs do not allow {operation.name.lower()} on this {what}"
    return KafkaError(_CODES[resource_type], need)


DENIED_TOPIC: Final = {one: denied(one, ResourceType.TOPIC) for one in AclOperation}
"""The error for a topic, by what was asked."""


def closed(_request: Request, _rights: Rights, _services: Services) -> Denial:
    """Denies every request: of an API that says nothing about what it needs."""
    return Denial(denied(AclOperation.ALL, ResourceType.CLUSTER))


def everyone(_request: Request, _rights: Rights, _services: Services) -> None:
    """Denies nothing: everyone may send the request."""


_ON_TOPICS: Final[dict[Permit, AclOperation]] = {}


def on_topics(operation: AclOperation, permit: Permit) -> Permit:
    """Returns the permit; notes that it needs the operation on each topic of a request, so that long ones are judged in turns."""
    _ON_TOPICS[permit] = operation
    return permit


class Judged:
    """Decisions about the topics of a long request."""

    def __init__(self, operation: AclOperation | None) -> None:
        """`operation` is what the request needs on each of them; None: nothing, or something else."""
        self.operation = operation
        self.refused: set[Any] = set()
        self.is_any_allowed = False
        self.ids: set[Any] = set()
        """The ids among the names, of topics that exist."""
        self.rest: Any = None
        """The request without the refused topics, if it has others."""

    def is_refused(self, topic: Any, _partition: int) -> bool:
        """Whether a topic is refused, as the request names it."""
        return topic in self.refused

    def judge(self, keys: Iterable[Any], rights: Rights, services: Services) -> Iterator[None]:
        """Decides about a topic at a time, by name or id."""
        assert self.operation is not None
        for key in keys:
            name = key if isinstance(key, str) else name_of(key, services)
            if name is None or rights.may(self.operation, ResourceType.TOPIC, name):
                self.is_any_allowed = True
            else:
                self.refused.add(key)
            if name is not None and name is not key:
                self.ids.add(key)
            yield


async def judge_in_turns(permit: Permit, request: Request, services: Services) -> None:
    """Decides, some at a time, about the topics of a long request; the permit finds the decisions in `request.judged`.

    The refused topics are taken out of it beside the event loop.
    """
    access = services.access
    if access is None:
        return
    request.judged = judged = Judged(_ON_TOPICS.get(permit))
    if judged.operation is not None:
        keys = (key for key, _, _ in topics_of(request.body))
        await work_in_turns(judged.judge(keys, access.rights(request.peer), services))
        if judged.refused and judged.is_any_allowed:
            work = partial(without, request.body, judged.is_refused)
            judged.rest = await for_client(request.peer.host, work)


asked_by_handler = everyone
"""The permit of an API whose handler asks."""


def cluster(operation: AclOperation) -> Permit:
    """Needs this on the cluster."""
    denial = Denial(denied(operation, ResourceType.CLUSTER))

    def permit(_request: Request, rights: Rights, _services: Services) -> Denial | None:
        return None if rights.may_with_cluster(operation) else denial

    return permit


def group(operation: AclOperation) -> Permit:
    """Needs this on the group that the request names."""
    denial = Denial(denied(operation, ResourceType.GROUP))

    def permit(request: Request, rights: Rights, _services: Services) -> Denial | None:
        is_allowed = rights.may(operation, ResourceType.GROUP, request.body.group_id)
        return None if is_allowed else denial

    return permit


def group_and_topics(on_group: AclOperation, on_topics_: AclOperation) -> Permit:
    """Needs one thing on the group that the request names, and another on each of its topics."""
    permit_group, permit_topics = group(on_group), topics(on_topics_)

    def permit(request: Request, rights: Rights, services: Services) -> Denial | None:
        denial = permit_group(request, rights, services)
        return permit_topics(request, rights, services) if denial is None else denial

    return on_topics(on_topics_, permit)


def topics(operation: AclOperation, *, or_cluster: AclOperation | None = None) -> Permit:
    """Needs this on each topic that the request names; or `or_cluster` on the cluster, for all of them."""

    def permit(request: Request, rights: Rights, services: Services) -> Denial | None:
        if or_cluster is not None and rights.may_with_cluster(or_cluster):
            return None
        keys = (key for key, _, _ in topics_of(request.body))
        return denied_topics(operation, keys, rights, services, request.judged)

    return on_topics(operation, permit)


def denied_topics(
    operation: AclOperation,
    keys: Iterable[Any],
    rights: Rights,
    services: Services,
    judged: Judged | None = None,
) -> Denial | None:
    """The denial of those topics on which the client may not do this; `keys` are their names or ids.

    An unknown id is not denied: the handler says that it is unknown. Decisions in `judged` are taken from there.
    """
    if judged is not None and judged.operation is operation:
        if judged.refused and judged.is_any_allowed:
            return Denial(DENIED_TOPIC[operation], judged.is_refused)
        return _denial(operation, judged.refused or None, is_any_allowed=judged.is_any_allowed)
    allowed = rights.allowed(operation, ResourceType.TOPIC)
    refused: set[Any] | None = None
    is_any_allowed = False
    for key in keys:
        name = key if isinstance(key, str) else name_of(key, services)
        if name is None or allowed[name]:
            is_any_allowed = True
        else:
            refused = refused or set()
            refused.add(key)
    return _denial(operation, refused, is_any_allowed=is_any_allowed)


def _denial(
    operation: AclOperation, refused: set[Any] | None, *, is_any_allowed: bool
) -> Denial | None:
    if refused is None:
        return None
    if not is_any_allowed:
        return Denial(DENIED_TOPIC[operation])
    return Denial(DENIED_TOPIC[operation], lambda topic, _: topic in refused)


def name_of(topic_id: uuid.UUID, services: Services) -> str | None:
    """The name of a topic; None for an unknown id."""
    topic = services.registry.topics_by_id.get(topic_id)
    return None if topic is None else topic.name


def rights_of(request: Request, services: Services) -> Rights | None:
    """The rights of the client; None if everyone may do everything."""
    access = services.access
    return None if access is None else access.rights(request.peer)


def check_cluster(rights: Rights | None, operation: AclOperation) -> None:
    """Raises `KafkaError` if the client may not do this with the cluster."""
    check(rights, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def check(
    rights: Rights | None, operation: AclOperation, resource_type: ResourceType, name: str
) -> None:
    """Raises `KafkaError` if the client may not do this."""
    if rights is not None and not rights.may(operation, resource_type, name):
        raise denied(operation, resource_type)


def may(
    rights: Rights | None, operation: AclOperation, resource_type: ResourceType, name: str
) -> bool:
    """Whether the client may do this."""
    return rights is None or rights.may(operation, resource_type, name)
