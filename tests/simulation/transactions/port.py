"""The Kafka port as simulated clients speak it: whole requests as bytes, over the connections of the simulated network."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from echoless.broker.handlers.apis import API_BY_KEY
from echoless.broker.handlers.loaded import load_for
from echoless.protocol import registry
from tests.simulation.clients import Client
from tests.simulation.observations import Spot
from tests.simulation.transactions.fetches import (
    FETCH,
    FetchAnswer,
    fetch_request,
    read_fetch_answer,
)
from tests.simulation.transactions.fetches import VERSION as FETCH_VERSION
from tests.simulation.transactions.seen import SeenTransactions
from tests.support.raw_client import decode_whole, encode_body, encode_frame, message
from tests.support.raw_produce import (
    PRODUCE,
    PartitionAnswer,
    PartitionData,
    decode_produce,
    encode_produce,
    is_flexible,
)

VERSIONS: Final[Mapping[str, tuple[int, ...]]] = {
    "init_producer_id": (1, 4, 5),
    "add_partitions_to_txn": (1, 3),
    "add_offsets_to_txn": (1, 3),
    "txn_offset_commit": (3, 5),
    "end_txn": (1, 3, 4, 5),
    "find_coordinator": (3,),
    "fetch": (FETCH_VERSION,),
    "produce": (9, 11, 12),
}
"""The versions that simulated clients use."""
_AFTER_CORRELATION_ID: Final = 8
_ACKS_ALL: Final = -1
_PRODUCE_TIMEOUT_MS: Final = 3000


@functools.cache
def import_handlers() -> None:
    """Imports what brokers import with the first request, so that no history depends on those before it."""
    by_name = {api.name: api for api in API_BY_KEY.values()}
    for name, versions in VERSIONS.items():
        for version in versions:
            load_for(by_name[name], version)
            registry._response_encoder(name, version)


class KafkaPort:
    """The requests of one client program."""

    def __init__(self, client: Client, seen: SeenTransactions, timeout_s: float) -> None:
        """`timeout_s`: how long it waits for an answer before it gives the connection up."""
        import_handlers()
        self.client = client
        self.seen = seen
        self._timeout_s = timeout_s
        self._sent = 0

    async def ask(self, node: str, api: str, version: int, /, **fields: Any) -> Any:
        """The answer of a broker, as kio's entity. Raises `NoAnswerError`, the connection being given up then."""
        request = message(api, version, "Request")(**fields)
        body, flexible = encode_body(request)
        answer = await self._exchange(node, request.__api_key__, version, body, flexible=flexible)
        response = message(api, version, "Response")
        entity, _ = decode_whole(response, answer[_AFTER_CORRELATION_ID:])
        code = CODES[api](entity)
        self.seen.count(f"{api} answered {code}")
        self.client.observations.note(self.client.name, api, version, node, code)
        return entity

    async def fetch(
        self, node: str, spot: Spot, position: int, *, is_committed: bool
    ) -> FetchAnswer:
        """The row of a fetch from `position` on. Raises `NoAnswerError`."""
        body = fetch_request(spot, position, is_committed=is_committed)
        data = await self._exchange(node, FETCH, FETCH_VERSION, body, flexible=False)
        answer = read_fetch_answer(data[_AFTER_CORRELATION_ID:])
        self.seen.count(f"fetch answered {answer.error_code}")
        self.client.observations.note(
            self.client.name, "fetch", FETCH_VERSION, node, answer.error_code
        )
        return answer

    async def produce(
        self, node: str, version: int, spot: Spot, batch: bytes, transactional_id: str
    ) -> PartitionAnswer:
        """The answer to one batch with acks=all. Raises `NoAnswerError`."""
        rows = [PartitionData(spot.topic, spot.partition, batch)]
        body = encode_produce(
            version,
            _ACKS_ALL,
            rows,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            transactional_id=transactional_id,
        )
        flexible = is_flexible(version)
        answer = await self._exchange(node, PRODUCE, version, body, flexible=flexible)
        (row,) = decode_produce(version, answer[_AFTER_CORRELATION_ID + flexible :])
        self.seen.count(f"produce answered {row.error}")
        self.client.observations.note(
            self.client.name, "produce", version, spot, node, row.error, row.base_offset
        )
        return row

    async def _exchange(
        self, node: str, api_key: int, version: int, body: bytes, *, flexible: bool
    ) -> bytes:
        self._sent += 1
        frame = encode_frame(api_key, version, self._sent, body, flexible=flexible)
        connection = self.client.connection(node)
        future = connection.send_frame(frame)
        return await self.client.answered(connection, future, self._timeout_s)


def _own_code(answer: Any) -> int:
    return int(answer.error_code)


def _of_partitions(answer: Any) -> int:
    """The error of a row that was judged itself."""
    codes = [
        int(row.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    ]
    not_attempted = 55
    return max(codes, key=lambda code: (code != not_attempted, code))


def _of_offsets(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


CODES: Final[Mapping[str, Callable[[Any], int]]] = {
    "init_producer_id": _own_code,
    "add_partitions_to_txn": _of_partitions,
    "add_offsets_to_txn": _own_code,
    "txn_offset_commit": _of_offsets,
    "end_txn": _own_code,
    "find_coordinator": _own_code,
}
"""The error of an answer, by API."""
