"""Topics created, deleted and described without end (items 4 and 5 of the issue)."""

from __future__ import annotations

import datetime
import random
from typing import Any

from tests.hostile.siege.attacker import Line, OnOneLine, Repeated, Target
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import message, nested
from tests.support.raw_produce import PartitionData

_TIMEOUT = datetime.timedelta(seconds=10)


async def create(line: Line, name: str, partitions: int, **configs: str) -> int:
    """Creates a topic; the error code."""
    topic = nested("create_topics", 5, "CreatableTopic")(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=(),
        configs=tuple(
            nested("create_topics", 5, "CreatableTopicConfig")(
                name=key.replace("_", "."), value=value
            )
            for key, value in configs.items()
        ),
    )
    response = await line.call("create_topics", 5, topics=(topic,), timeout=_TIMEOUT)
    return int(response.topics[0].error_code)


async def delete(line: Line, name: str) -> int:
    """Deletes a topic; the error code."""
    response = await line.call("delete_topics", 4, topic_names=(name,), timeout=_TIMEOUT)
    return int(response.responses[0].error_code)


class TopicChurn(Repeated):
    name = "topic-churn"
    does = "topics of 1 to 300 partitions, created and deleted in a loop"
    lanes = 2
    partitions_max = 300

    async def attempt(self, target: Target, rng: random.Random) -> str:
        line = await Line.open(target.kafka)
        try:
            name = f"churn-{rng.randrange(4)}"
            created = await create(line, name, rng.randint(1, self.partitions_max))
            self.tries[f"create: error {created}" if created else "created"] += 1
            deleted = await delete(line, name)
            return f"delete: error {deleted}" if deleted else "deleted"
        finally:
            line.abort()


class EverythingDescribed(OnOneLine):
    name = "metadata-for-all"
    does = "Metadata for all topics, by all versions, pipelined"

    async def ask(self, line: Line, rng: random.Random) -> str:
        versions = [rng.choice((1, 4, 8, 12)) for _ in range(rng.randint(1, 8))]
        for version in versions:
            fields: dict[str, Any] = {"topics": None}
            if version >= 4:
                fields["allow_auto_topic_creation"] = False
            if version >= 8:
                fields["include_topic_authorized_operations"] = True
            if 8 <= version <= 10:
                fields["include_cluster_authorized_operations"] = True
            line.send_request(message("metadata", version, "Request")(**fields))
        for version in versions:
            await line.receive_response("metadata", version)
        return "answered"


class TooManyPartitions(Repeated):
    name = "too-many-partitions"
    does = "topics of more partitions than the broker has file descriptors for; most are refused"
    pause_s = 0.5

    async def attempt(self, target: Target, rng: random.Random) -> str:
        line = await Line.open(target.kafka)
        try:
            name = f"huge-{rng.randrange(3)}"
            created = await create(line, name, rng.choice((500, 2000, 10_000, 2**31 - 1)))
            if created == 0:
                await delete(line, name)
            return f"error {created}" if created else "created"
        finally:
            line.abort()


class TinySegments(Repeated):
    name = "tiny-segments"
    does = "topics of segment.bytes=100: every batch begins new files"
    pause_s = 0.1
    _batches_max = 400

    async def attempt(self, target: Target, rng: random.Random) -> str:
        line = await Line.open(target.kafka)
        try:
            name = f"tiny-{rng.randrange(2)}"
            await create(line, name, 1, segment_bytes="100")
            row = PartitionData(name, 0, plain_batch([b"x"]).encode())
            answer = None
            for _ in range(rng.randint(1, self._batches_max)):
                (answer,) = await line.produce(7, 1, [row])
                self.tries[f"produce: error {answer.error}" if answer.error else "stored"] += 1
            if rng.random() < 0.3:
                await delete(line, name)
            return "round"
        finally:
            line.abort()


class AutoCreation(OnOneLine):
    name = "auto-creation"
    does = (
        "Metadata for topics that do not exist and may be created, up to 50 of them, and bad names"
    )

    async def ask(self, line: Line, rng: random.Random) -> str:
        name = rng.choice((f"auto-{rng.randrange(50)}", "../etc", "a" * 300, "", "ü", "x/y", "."))
        topic = nested("metadata", 8, "MetadataRequestTopic")(name=name)
        response = await line.call(
            "metadata",
            8,
            topics=(topic,),
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return f"error {int(response.topics[0].error_code)}"
