"""Fetch (1), versions 4-17: record batches below the high watermark, by long poll.

`broker/records/fetch.py` says when it is answered and with how much; both ports end there. With isolation
level 1 (read_committed) records are returned up to the last stable offset, and the aborted transactions that overlap them.

v5 log_start_offset; v7 (KIP-227) fetch sessions, see `session_requests.py`; v9 leader epochs; v12 flexible,
last_fetched_epoch; v13 topic ids; v16 (KIP-951) the current leader and its address with code 6. Followers replicate over the native port, not here.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final

from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.permits import DENIED_TOPIC, denied_topics, on_topics
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Names, Served
from echoless.broker.handlers.session_requests import asks_itself, with_session
from echoless.broker.network.denial import Denial
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import ROWS_PER_TURN, for_client
from echoless.broker.records.fetch import count_rows, fetch
from echoless.broker.records.repeated_fetch import ROWS_MIN, fetch_repeated
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode
from echoless.protocol.fetch import (
    PartitionFetched,
    TopicFetched,
    encode_fetch_response,
)
from echoless.protocol.fetch_request import NO_SESSION, NO_SESSION_EPOCH, FetchRequest

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)

_NONE: Final = ErrorCode.NONE
"""Read once: a member of an enum takes 0.2 us in Python 3.11, 1 % of a fetch."""


def handle(request: Request, services: Services) -> Outcome:
    """Reads what is available; waits if that is not enough."""
    body: FetchRequest = request.body
    if body.session_epoch != NO_SESSION_EPOCH or body.session_id != NO_SESSION:
        return with_session(request, services)
    rows = count_rows(body)
    if rows >= ROWS_MIN:
        packed = fetch_repeated(services.fetch, body, request.peer, request.version)
        if isinstance(packed, bytes | list):
            return packed
        if packed is not None:
            return _repeated_later(request, services, packed)
    topics = fetch(services.fetch, body, request.peer, rows)
    if isinstance(topics, list):
        return encode_fetch_response(request.version, _NONE, topics)
    return _answer_later(request, topics)


async def _repeated_later(
    request: Request, services: Services, packed: Awaitable[bytes | list[bytes] | None]
) -> Answer:
    found = await packed
    if found is not None:
        return found
    body: FetchRequest = request.body
    topics = fetch(services.fetch, body, request.peer, count_rows(body))
    return await _answer_later(request, topics)


async def _answer_later(
    request: Request, topics: list[TopicFetched] | Awaitable[list[TopicFetched]]
) -> Answer:
    found = await topics if isinstance(topics, Awaitable) else topics
    if sum(len(partitions) or 1 for _, partitions in found) > ROWS_PER_TURN:
        encode = partial(encode_fetch_response, request.version, _NONE, found)
        return await for_client(request.peer.host, encode)
    return encode_fetch_response(request.version, _NONE, found)


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused partition."""
    topics = [
        (key, [PartitionFetched(index, refusal.error.code) for index in indexes])
        for key, indexes in refusal.rows
    ]
    return encode_fetch_response(refusal.request.version, _NONE, topics)


def permit(request: Request, rights: Rights, services: Services) -> Denial | None:
    """Needs Read on each topic; ClusterAction if the client says that it is a replica.

    Of a session all topics are asked, each time, where they are read.
    """
    body: FetchRequest = request.body
    if body.replica_id >= 0:
        is_replica = rights.may_with_cluster(AclOperation.CLUSTER_ACTION)
        return None if is_replica else Denial(DENIED_TOPIC[AclOperation.CLUSTER_ACTION])
    if asks_itself(body, services):
        return None
    return denied_topics(
        AclOperation.READ, (one.topic for one in body.topics), rights, services, request.judged
    )


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("responses", "partitions"),
    permit=on_topics(AclOperation.READ, permit),
)
