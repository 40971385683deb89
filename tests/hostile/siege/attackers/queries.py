"""Requests that only read, of as many rows as fit into a request."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from tests.hostile.siege.attacker import Line, OnOneLine
from tests.support.kio_requests import smallest_request
from tests.support.raw_client import nested

_ROWS = (1, 10, 1000, 10_000)


class QueryFlood(OnOneLine):
    name = "query-flood"
    does = "ListOffsets, OffsetForLeaderEpoch, DescribeProducers and Fetch of up to 10,000 rows"
    pause_s = 0.05

    async def ask(self, line: Line, rng: random.Random) -> str:
        rows = rng.choice(_ROWS)
        ask = rng.choice((_list_offsets, _leader_epochs, _producers, _fetches))
        name, version, topic = ask(rng, rows)
        request = dataclasses.replace(smallest_request(name, version, elements=0), topics=(topic,))
        line.send_request(request)
        await line.receive_response(name, version)
        return f"{rows} rows answered"


class ConfigQueries(OnOneLine):
    name = "config-queries"
    does = "DescribeConfigs of topics and brokers, up to 1,000 resources at a time"
    pause_s = 0.05

    async def ask(self, line: Line, rng: random.Random) -> str:
        resource = nested("describe_configs", 4, "DescribeConfigsResource")
        resources = tuple(
            resource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in rng.choices(((2, "good"), (4, "1"), (2, "none"), (99, "")), k=1)
            * rng.choice((1, 10, 1000))
        )
        answer = await line.call(
            "describe_configs",
            4,
            resources=resources,
            include_synonyms=True,
            include_documentation=True,
        )
        return f"error {int(answer.results[0].error_code)}" if answer.results else "answered"


def _list_offsets(rng: random.Random, rows: int) -> tuple[str, int, Any]:
    row = nested("list_offsets", 5, "ListOffsetsPartition")
    timestamp = rng.choice((-1, -2, 0, 1, 2**62))
    partitions = tuple(row(partition_index=index % 2, timestamp=timestamp) for index in range(rows))
    topic = nested("list_offsets", 5, "ListOffsetsTopic")(name="good", partitions=partitions)
    return "list_offsets", 5, topic


def _leader_epochs(rng: random.Random, rows: int) -> tuple[str, int, Any]:
    row = nested("offset_for_leader_epoch", 3, "OffsetForLeaderPartition")
    epoch = rng.choice((-1, 0, 2**31 - 1))
    partitions = (row(partition=0, leader_epoch=epoch),) * rows
    topic = nested("offset_for_leader_epoch", 3, "OffsetForLeaderTopic")(
        topic="good", partitions=partitions
    )
    return "offset_for_leader_epoch", 3, topic


def _producers(rng: random.Random, rows: int) -> tuple[str, int, Any]:
    name = rng.choice(("good", "produced"))
    topic = nested("describe_producers", 0, "TopicRequest")(
        name=name, partition_indexes=(0,) * min(rows, 1000)
    )
    return "describe_producers", 0, topic


def _fetches(rng: random.Random, rows: int) -> tuple[str, int, Any]:
    row = nested("fetch", 11, "FetchPartition")
    offset = rng.choice((0, 2**62))
    partitions = tuple(
        row(partition=index % 2, fetch_offset=offset, partition_max_bytes=2**31 - 1)
        for index in range(rows)
    )
    return "fetch", 11, nested("fetch", 11, "FetchTopic")(topic="good", partitions=partitions)
