"""A client's request as an event: read before it is handled, while someone records requests.

Only Produce is read further, for its batches. Nothing is kept of the bodies of other requests, which may have secrets.
This runs on the event loop, so a request of very many batches comes without them, and a very large one without records.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from echoless.broker.decisions.decisions import CLIENT_ID_MAX
from echoless.broker.decisions.events import RequestSeen, SeenBatch
from echoless.broker.network.request import Peer
from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import Frame
from echoless.protocol.headers import read_request_header, skip_tagged_fields
from echoless.protocol.produce_request import (
    FLEXIBLE_FROM,
    ProduceRequest,
    decode_produce_request,
)
from echoless.protocol.record_batch import HEADER_SIZE, read_header
from echoless.protocol.request_fields import ManyElementsError

if TYPE_CHECKING:
    from echoless.broker.metadata.topic import Topic
    from echoless.protocol.registry import Api

_PRODUCE: Final = 0
BATCHES_MAX: Final = 1000
"""Topics and partitions of a request that are read, in about a millisecond."""
RECORD_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size of a request up to which its records are copied, in about a millisecond."""


def request_seen(
    frame: Frame,
    peer: Peer,
    apis: Mapping[int, Api],
    topics: Mapping[uuid.UUID, Topic],
    *,
    with_records: bool,
) -> RequestSeen | None:
    """The event, without its number and time; None for bytes that are no request of an API, which the dispatcher refuses.

    `with_records`: with a copy of each batch's records, up to `RECORD_BYTES_MAX`. `topics` are those that a request may
    name by id.
    """
    try:
        header = read_request_header(frame)
    except DecodeError:
        return None
    api = apis.get(header.api_key)
    if api is None:
        return None
    transactional_id, acks, is_cut = None, None, False
    batches: tuple[SeenBatch, ...] = ()
    if header.api_key == _PRODUCE and api.serves(header.api_version):
        keeps_records = with_records and len(frame) <= RECORD_BYTES_MAX
        try:
            produce = _read(header.api_version, frame, header.body_position)
            transactional_id, acks = produce.transactional_id, produce.acks
            batches = tuple(_batches(produce, topics, with_records=keeps_records))
        except ManyElementsError:
            is_cut = True
        except DecodeError:
            pass  # the dispatcher refuses it
    client_id = header.client_id
    return RequestSeen(
        number=0,
        time_ms=0,
        api=api.name,
        version=header.api_version,
        size_bytes=len(frame),
        client_id=None if client_id is None else client_id[:CLIENT_ID_MAX],
        address=peer.address,
        principal=peer.principal,
        connection_id=peer.connection_id,
        correlation_id=header.correlation_id,
        transactional_id=transactional_id,
        acks=acks,
        batches=batches,
        is_cut=is_cut,
    )


def _read(version: int, frame: Frame, position: int) -> ProduceRequest:
    """Raises `DecodeError`."""
    if version >= FLEXIBLE_FROM:
        position = skip_tagged_fields(frame, position)
    return decode_produce_request(version, frame, position, BATCHES_MAX)


def _batches(
    produce: ProduceRequest, topics: Mapping[uuid.UUID, Topic], *, with_records: bool
) -> Iterator[SeenBatch]:
    for topic in produce.topics:
        name = topic.topic
        if isinstance(name, uuid.UUID):
            known = topics.get(name)
            name = str(name) if known is None else known.name
        for partition, records in topic.partitions:
            if records is None or len(records) < HEADER_SIZE:
                continue
            kept = bytes(records[HEADER_SIZE:]) if with_records else None
            yield SeenBatch(name, partition, read_header(records), kept)
