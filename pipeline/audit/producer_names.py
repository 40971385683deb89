"""Names of producers: their transactional ids, and the client ids that brokers still remember.

A batch has a producer id and no name. The transactional ids are in `__transaction_state`: in data directories its
segments are read, all records that ever named an id; of a running cluster every broker is asked (ListTransactions), which
knows the current ids. Client ids are known to admin ports, for the producers that they remember.

Only what findings are about is looked up, on the driver. What cannot be had stays unknown: a name never fails an audit.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import quote

from echoless.client.cluster import parse_addresses
from echoless.client.connection import BrokerConnection, ConnectionFailedError
from echoless.client.messages import UnservedApiError
from echoless.client.security import NO_SECURITY, Security
from echoless.pipeline.batches.data_directory import NotADataDirectoryError, find_partitions
from echoless.pipeline.batches.partition_leader import ClusterReadError, connect, read_metadata
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import walk
from echoless.protocol.records import read_records
from echoless.protocol.state_records.transaction_records import (
    NO_PRODUCER_ID,
    read_transaction_key,
    read_transaction_value,
)

PRODUCERS_MAX: Final = 1_000
_STATE_TOPIC: Final = "__transaction_state"
_TIMEOUT_S: Final = 10.0
Place = tuple[str, int, int]
"""Topic, partition, producer id."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ProducerNames:
    """Names that are known."""

    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    """By producer id."""
    client_ids: Mapping[Place, str] = field(default_factory=dict)


def ids_in_directories(paths: Sequence[str], wanted: Collection[int]) -> dict[int, str]:
    """Returns the transactional ids of producer ids, by the states that brokers have stored."""
    return {
        producer_id: name
        for path in paths
        for segment in _state_segments(Path(path))
        for name, producer_id in _named_in(segment)
        if producer_id in wanted
    }


def _state_segments(directory: Path) -> Iterator[Path]:
    try:
        parts = find_partitions(directory)
    except NotADataDirectoryError:
        return
    for part in parts:
        if part.topic == _STATE_TOPIC:
            yield from sorted(part.path.glob("*.log"))


def _named_in(segment: Path) -> Iterator[tuple[str, int]]:
    """Yields transactional ids with their producer ids, up to the first bytes that cannot be read."""
    data = segment.read_bytes()
    try:
        for position, header in walk(data):
            for record in read_records(data[position : position + header.size]):
                if record.key is None or not record.value:
                    continue
                name = read_transaction_key(bytes(record.key))
                if isinstance(name, str):
                    value = read_transaction_value(bytes(record.value))
                    ids = (value.producer_id, value.previous_producer_id, value.next_producer_id)
                    yield from ((name, one) for one in ids if one != NO_PRODUCER_ID)
    except DecodeError:
        return


def ids_in_cluster(
    bootstrap_servers: str, wanted: Collection[int], security: Security = NO_SECURITY
) -> dict[int, str]:
    """Returns the transactional ids of producer ids, as the coordinators have them now."""
    fields = {"state_filters": [], "producer_id_filters": sorted(wanted), "duration_filter": -1}
    found: dict[int, str] = {}
    try:
        with connect(bootstrap_servers, security) as bootstrap:
            brokers = [(one.host, one.port) for one in read_metadata(bootstrap, None).brokers]
        for address in brokers:
            with BrokerConnection.open(*address, security=security) as connection:
                answer = connection.request("list_transactions", fields)
            found |= {one.producer_id: one.transactional_id for one in answer.transaction_states}
    except (ConnectionFailedError, ClusterReadError, UnservedApiError):
        return found  # no right to ask, or a broker before Kafka 3.0
    return found


def client_ids(admin_servers: str, wanted: Iterable[Place]) -> dict[Place, str]:
    """Returns the client ids of producers that the brokers behind the admin ports remember."""
    found: dict[Place, str] = {}
    for place in wanted:
        for address in parse_addresses(admin_servers):
            client_id = _client_id(address.host, address.port, place)
            if client_id is not None:
                found[place] = client_id
                break
    return found


def _client_id(host: str, port: int, place: Place) -> str | None:
    topic, partition, producer_id = place
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        path = f"/producers/{quote(topic, safe='')}/{partition}?producer_id={producer_id}"
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        found = json.loads(body)["producers"] if response.status == HTTPStatus.OK else []
    except (OSError, HTTPException, ValueError, KeyError):
        return None
    finally:
        connection.close()
    return next((str(one["client_id"]) for one in found if one["client_id"]), None)
