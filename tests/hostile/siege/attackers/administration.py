"""Administration that any client may ask for: records deleted, configurations at their extremes."""

from __future__ import annotations

import datetime
import random
from typing import Any

from tests.hostile.siege.attacker import Line, OnOneLine
from tests.hostile.siege.attackers.topics import create
from tests.support.raw_client import nested

_TOPIC = "administered"
_TIMEOUT = datetime.timedelta(seconds=5)
_NAMES = (
    *("segment.bytes", "segment.ms", "retention.ms", "retention.bytes", "index.interval.bytes"),
    *("max.message.bytes", "min.insync.replicas", "message.timestamp.type", "flush.messages"),
    *("producer.state.batches.to.retain", "cleanup.policy", "message.timestamp.before.max.ms"),
    *("compression.type", "no.such.name", ""),
)
_VALUES = ("-1", "0", "1", "14", str(2**31 - 1), str(2**63 - 1), str(2**64), "", "x", None, "é")


class ExtremeConfigs(OnOneLine):
    name = "extreme-configs"
    does = "IncrementalAlterConfigs and AlterConfigs to the least, the largest and no values"

    async def ask(self, line: Line, rng: random.Random) -> str:
        await create(line, _TOPIC, 3)
        if rng.random() < 0.7:
            return await self._alter(line, rng, "incremental_alter_configs", 1)
        return await self._alter(line, rng, "alter_configs", 1)

    async def _alter(self, line: Line, rng: random.Random, api: str, version: int) -> str:
        config = nested(api, version, "AlterableConfig")
        rows: list[Any] = []
        for _ in range(rng.randint(1, 3)):
            operation = {"config_operation": rng.randint(-1, 4)} if api[0] == "i" else {}
            rows.append(config(name=rng.choice(_NAMES), value=rng.choice(_VALUES), **operation))
        resource = nested(api, version, "AlterConfigsResource")(
            resource_type=rng.choice((2, 2, 2, 99)),
            resource_name=rng.choice((_TOPIC, _TOPIC, "none")),
            configs=tuple(rows),
        )
        answer = await line.call(api, version, resources=(resource,), validate_only=False)
        return f"error {int(answer.responses[0].error_code)}"


class RecordDeletion(OnOneLine):
    name = "record-deletion"
    does = "DeleteRecords up to the end, beyond it and before the start, of one to 1,000 rows"

    async def ask(self, line: Line, rng: random.Random) -> str:
        row = nested("delete_records", 1, "DeleteRecordsPartition")
        offset = rng.choice((-1, -2, 0, 1, 2**62))
        rows = tuple(
            row(partition_index=index % 5, offset=offset) for index in range(rng.choice((1, 1000)))
        )
        topic = nested("delete_records", 1, "DeleteRecordsTopic")(name="produced", partitions=rows)
        answer = await line.call("delete_records", 1, topics=(topic,), timeout=_TIMEOUT)
        return f"error {int(answer.topics[0].partitions[0].error_code)}"


class GrowingTopics(OnOneLine):
    name = "growing-topics"
    does = "CreatePartitions to fewer, the same and many more partitions, and ElectLeaders for all"
    pause_s = 0.1

    async def ask(self, line: Line, rng: random.Random) -> str:
        if rng.random() < 0.5:
            answer = await line.call(
                "elect_leaders",
                1,
                election_type=rng.randint(-1, 2),
                topic_partitions=None,
                timeout=_TIMEOUT,
            )
            return f"error {int(answer.error_code)}"
        count = rng.choice((-1, 0, 1, 4, 20, 2**31 - 1))
        topic = nested("create_partitions", 1, "CreatePartitionsTopic")(
            name=_TOPIC, count=count, assignments=None
        )
        answer = await line.call(
            "create_partitions", 1, topics=(topic,), timeout=_TIMEOUT, validate_only=False
        )
        return f"error {int(answer.results[0].error_code)}"
