"""A walk through the administration APIs as a transcript: the requests, and the codes of the answers.

Run against Apache Kafka and against Echoless by `test_as_apache_kafka.py`. Every line is one row of
an answer: its name, its error code, and the numbers that both brokers must agree on.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from echoless.broker.handlers.config_resource import ConfigResourceType
from tests.broker.handlers.test_alter_configs import replace
from tests.broker.handlers.test_alter_partition_reassignments import reassign
from tests.broker.handlers.test_create_partitions import extend
from tests.broker.handlers.test_create_topics import create, wanted
from tests.broker.handlers.test_delete_topics import delete
from tests.broker.handlers.test_describe_configs import describe
from tests.broker.handlers.test_elect_leaders import elect
from tests.broker.handlers.test_fetch import fetch, wanted_partition
from tests.broker.handlers.test_incremental_alter_configs import alter
from tests.broker.handlers.test_list_partition_reassignments import listed
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import (
    RawConnection,
    create_topic,
    describe_producers_request,
    nested,
    producer_rows,
    topic_id,
)
from tests.support.raw_produce import PartitionData

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
_TIMEOUT = datetime.timedelta(seconds=10)
_RECORDS = 10


async def transcript(kafka: RawConnection) -> list[str]:
    """All lines, in order. Does not delete its topics."""
    return [
        line
        for part in (
            _topics,
            _partitions,
            _configs,
            _settings,
            _records,
            _epochs,
            _fetches,
            _sessions,
            _offsets,
            _metadata,
            _producers,
            _operations,
            _moves,
        )
        async for line in part(kafka)
    ]


def _line(what: str, row: Any, *names: str) -> str:
    values = [f"{name}={getattr(row, name)}" for name in names]
    return " ".join([what, row.error_code.name, *values])


async def _topics(kafka: RawConnection) -> AsyncIterator[str]:
    numbers = ("num_partitions", "replication_factor")
    first = [
        wanted("adm-plain", num_partitions=3),
        wanted("adm-defaults"),
        wanted("adm-configured", configs={"segment.bytes": "1048576"}),
        wanted("adm-assigned", assignments={0: (1,), 1: (1,)}),
    ]
    wrong = [
        wanted("bad name"),
        wanted(""),
        wanted(".."),
        wanted("x" * 250),
        wanted("adm-plain"),
        wanted("replicas", replication_factor=3),
        wanted("no-replicas", replication_factor=0),
        wanted("negative-replicas", replication_factor=-2),
        wanted("none", num_partitions=0),
        wanted("negative", num_partitions=-2),
        wanted("unknown-config", configs={"segment.bites": "1"}),
        wanted("wrong-config", configs={"segment.bytes": "few"}),
        wanted("null-config", configs={"segment.bytes": None}),
        wanted("both", num_partitions=2, assignments={0: (1,), 1: (1,)}),
        wanted("stranger", assignments={0: (9,)}),
        wanted("gap", assignments={1: (1,)}),
        wanted("unequal", assignments={0: (1,), 1: (1, 9)}),
        wanted("assigned-twice", assignments=[(0, (1,)), (0, (1,))]),
        wanted("same-replica", assignments={0: (1, 1)}),
        wanted("listed-twice"),
        wanted("listed-twice", num_partitions=2),
    ]
    for rows, options in ((first, {}), (wrong, {}), ([wanted("v")], {"validate_only": True})):
        for row in sorted(await create(kafka, *rows, **options), key=lambda row: row.name):
            yield _line(f"create {row.name[:20]!r}", row, *numbers)
    for name in ("adm-defaults", "missing"):
        for row in await delete(kafka, {"name": name}):
            yield _line(f"delete {name}", row)
    for topic in ({"topic_id": uuid.UUID(int=5)}, {}, {"name": "x", "topic_id": uuid.UUID(int=5)}):
        for row in await delete(kafka, topic):
            yield _line(f"delete {topic}", row)
    for row in await delete(kafka, {"name": "adm-plain"}, {"name": "adm-plain"}):
        yield _line("delete plain twice", row)


async def _partitions(kafka: RawConnection) -> AsyncIterator[str]:
    cases: list[tuple[str, int, list[tuple[int, ...]] | None]] = [
        ("adm-plain", 4, None),
        ("adm-plain", 4, None),
        ("adm-plain", 1, None),
        ("adm-plain", 0, None),
        ("adm-plain", -1, None),
        ("adm-plain", 6, [(1,)]),
        ("adm-plain", 5, [(9,)]),
        ("adm-plain", 5, [(1, 1)]),
        ("adm-plain", 5, [()]),
        ("adm-plain", 5, []),
        ("adm-plain", 5, [(1,)]),
        ("missing", 5, None),
    ]
    for case in cases:
        for row in await extend(kafka, case):
            yield _line(f"extend {case}", row)
    for row in await extend(kafka, ("adm-plain", 7, None), ("adm-plain", 8, None)):
        yield _line("extend plain twice", row)
    for row in await extend(kafka, ("adm-plain", 9, None), validate_only=True):
        yield _line("validate plain", row)


async def _settings(kafka: RawConnection) -> AsyncIterator[str]:
    """Settings of brokers, which are as they were at the end."""
    name = "log.cleaner.backoff.ms"
    for broker in ("1", ""):
        for changes in (
            [(name, SET, "20000")],
            [(name, SET, "soon")],
            [("log.segment.bytes", SET, "1")],
            [(name, SET, None)],
            [(name, APPEND, "1")],
            [("log.cleanup.policy", APPEND, "compact")],
            [("log.cleanup.policy", DELETE, None)],
            [(name, SET, "20000"), (name, SET, "20001")],
            [(name, 9, "1")],
            [("log.dirs", SET, "/x")],
            [("log.dirs", SET, "/x"), (name, SET, "20000")],
            [("log.dirs", DELETE, None)],
            [("nonsense", SET, "1")],
            [("nonsense", DELETE, None)],
            [("log.retention.ms", DELETE, None)],
            [],
        ):
            for validate_only in (True, False):
                for row in await alter(
                    kafka, (BROKER, broker, changes), validate_only=validate_only
                ):
                    yield _line(f"alter broker {broker!r} {changes} {validate_only}", row)
        row = await describe(kafka, BROKER, broker, [name], include_synonyms=True)
        (config,) = row.configs
        chain = [(one.name, one.value, int(one.source)) for one in config.synonyms]
        yield f"describe {config.value} {config.config_source} {config.read_only} {chain}"
    for broker in ("2", "one"):
        for row in await alter(kafka, (BROKER, broker, [(name, SET, "20000")])):
            yield _line(f"alter broker {broker!r}", row)
    for broker in ("1", ""):
        for configs in ([(name, "30000")], [(name, "x")], [("log.dirs", "/x")], []):
            row = await replace(kafka, configs, broker, ConfigResourceType.BROKER)
            yield _line(f"replace {configs} of broker {broker!r}", row)


async def _configs(kafka: RawConnection) -> AsyncIterator[str]:
    for resource_type, name in (
        (TOPIC, "adm-configured"),
        (TOPIC, "missing"),
        (TOPIC, "bad name"),
        (TOPIC, ""),
        (BROKER, "1"),
        (BROKER, "2"),
        (BROKER, "one"),
        (1, "any"),
        (99, "x"),
    ):
        row = await describe(kafka, resource_type, name, ["segment.bytes"])
        yield _line(f"describe {resource_type} {name!r}", row)
    for keys in (None, [], ["nonsense"]):
        row = await describe(kafka, TOPIC, "adm-configured", keys)
        yield f"{_line(f'describe {keys}', row)} something={bool(row.configs)}"
    for changes in (
        [("segment.bytes", SET, "2097152")],
        [("segment.bytes", DELETE, None)],
        [("retention.ms", DELETE, None)],
        [("segment.bites", SET, "1")],
        [("segment.bytes", SET, "few")],
        [("segment.bytes", SET, None)],
        [("segment.bytes", APPEND, "1")],
        [("segment.bytes", SUBTRACT, "1")],
        [("cleanup.policy", APPEND, "delete")],
        [("segment.bytes", 9, "1")],
        [("segment.bytes", SET, "1048576"), ("segment.bytes", SET, "1048577")],
        [],
    ):
        for row in await alter(kafka, (TOPIC, "adm-configured", changes)):
            yield _line(f"alter {changes}", row)
    change = [("retention.ms", SET, "1")]
    for resources in (
        [(TOPIC, "missing", change)],
        [(TOPIC, "bad name", change)],
        [(TOPIC, "adm-configured", change), (TOPIC, "adm-configured", change)],
        [(99, "x", change)],
    ):
        for row in await alter(kafka, *resources):
            yield _line(f"alter {resources[0][:2]} of {len(resources)}", row)
    for configs in (
        [("segment.bytes", "2097152")],
        [("segment.bites", "1")],
        [("segment.bytes", "few")],
        [("segment.bytes", None)],
    ):
        yield _line(f"replace {configs}", await replace(kafka, configs, name="adm-configured"))
    yield _line("replace missing", await replace(kafka, [], name="missing"))
    entry = (await describe(kafka, TOPIC, "adm-configured", ["segment.bytes"])).configs[0]
    yield f"segment.bytes {entry.value} {entry.config_source} {entry.config_type}"


async def _records(kafka: RawConnection) -> AsyncIterator[str]:
    await create_topic(kafka, "adm-records", 1)
    for sequence in range(_RECORDS):
        batch = plain_batch([b"v"], producer_id=900, producer_epoch=0, base_sequence=sequence)
        (answer,) = await kafka.produce(9, -1, [PartitionData("adm-records", 0, batch.encode())])
        yield f"produce {answer.error} {answer.base_offset}"
    for topic, partition, offset in (
        ("adm-records", 0, 4),
        ("adm-records", 0, 2),
        ("adm-records", 0, 11),
        ("adm-records", 0, -2),
        ("adm-records", 1, 0),
        ("missing", 0, 0),
        ("adm-records", 0, -1),
    ):
        wanted_row = nested("delete_records", 2, "DeleteRecordsPartition")(
            partition_index=partition, offset=offset
        )
        wanted_topic = nested("delete_records", 2, "DeleteRecordsTopic")(
            name=topic, partitions=(wanted_row,)
        )
        response = await kafka.call("delete_records", 2, topics=(wanted_topic,), timeout=_TIMEOUT)
        row = response.topics[0].partitions[0]
        yield _line(f"delete records {topic} {partition} {offset}", row, "low_watermark")


async def _epochs(kafka: RawConnection) -> AsyncIterator[str]:
    api = "offset_for_leader_epoch"
    for topic, partition, current, epoch in (
        ("adm-records", 0, -1, 0),
        ("adm-records", 0, 0, 0),
        ("adm-records", 0, 1, 0),
        ("adm-records", 0, -2, 0),
        ("adm-records", 0, -1, 7),
        ("adm-records", 0, -1, -1),
        ("adm-records", 1, -1, 0),
        ("missing", 0, -1, 0),
    ):
        wanted_row = nested(api, 4, "OffsetForLeaderPartition")(
            partition=partition, current_leader_epoch=current, leader_epoch=epoch
        )
        wanted_topic = nested(api, 4, "OffsetForLeaderTopic")(topic=topic, partitions=(wanted_row,))
        response = await kafka.call(api, 4, replica_id=-2, topics=(wanted_topic,))
        row = response.topics[0].partitions[0]
        what = f"epoch {topic} {partition} {current} {epoch}"
        yield _line(what, row, "leader_epoch", "end_offset")


async def _fetches(kafka: RawConnection) -> AsyncIterator[str]:
    """`adm-records` holds the offsets 4 to 9, all of leader epoch 0; `adm-empty` none."""
    await create_topic(kafka, "adm-empty", 1)
    for topic in ("adm-records", "adm-empty"):
        for offset, last_epoch, current in (
            (4, 0, -1),
            (10, 0, -1),
            (0, 0, -1),
            (0, -1, -1),
            (11, 0, -1),
            (11, -1, -1),
            (4, 1, -1),
            (11, 1, 0),
            (0, 1, -1),
            (4, -2, -1),
            (-1, 0, -1),
            (-1, -1, -1),
            (4, 0, 1),
            (4, 2**31 - 1, -1),
        ):
            wanted_row = wanted_partition(offset, last_epoch, current)
            row = (await fetch(kafka, {topic: [wanted_row]})).responses[0].partitions[0]
            what = f"fetch {topic} {offset} {last_epoch} {current}"
            numbers = ("high_watermark", "last_stable_offset", "log_start_offset")
            end = row.diverging_epoch
            size = len(row.records or b"")
            yield f"{_line(what, row, *numbers)} {end.epoch} {end.end_offset} {size} bytes"


async def _sessions(kafka: RawConnection) -> AsyncIterator[str]:
    for session_id, epoch in ((0, 0), (0, -1), (0, 1), (0, -2), (77, 0), (77, 1), (77, -1)):
        session = {"session_id": session_id, "session_epoch": epoch}
        response = await fetch(kafka, {"adm-records": [wanted_partition(4)]}, **session)
        yield f"{_line(f'session {session}', response)} {len(response.responses)} topics"


async def _offsets(kafka: RawConnection) -> AsyncIterator[str]:
    """Special timestamps, by version; wrong partitions, epochs and lists."""
    await create_topic(kafka, "adm-offsets", 1)
    batch = plain_batch([b"a", b"b"], producer_id=-1, producer_epoch=-1, base_sequence=-1)
    await kafka.produce(9, -1, [PartitionData("adm-offsets", 0, batch.encode())])
    cases = [("adm-offsets", [0], -1, time) for time in (-1, -2, -3, -4, -5, -6, 2**62)]
    cases += [("adm-offsets", [0], epoch, -1) for epoch in (0, 1, -2)]
    cases += [("adm-offsets", [7], -1, -1), ("missing", [0], -1, -1), ("bad name", [0], -1, -1)]
    cases += [("adm-offsets", [0, 0], -1, -1), ("adm-offsets", [0, 7], -1, -1)]
    for version in (1, 2, 4, 5, 6, 7, 8, 9):
        topic = nested("list_offsets", version, "ListOffsetsTopic")
        row = nested("list_offsets", version, "ListOffsetsPartition")
        fields = {"isolation_level": 0} if version >= 2 else {}
        for name, partitions, epoch, time in cases:
            known = {"current_leader_epoch": epoch} if version >= 4 else {}
            rows = [row(partition_index=index, timestamp=time, **known) for index in partitions]
            wanted_topic = topic(name=name, partitions=tuple(rows))
            response = await kafka.call(
                "list_offsets", version, replica_id=-1, topics=(wanted_topic,), **fields
            )
            for found in response.topics[0].partitions:
                what = f"offsets v{version} {name} {partitions} {epoch} {time}"
                yield _line(what, found, "offset")


async def _metadata(kafka: RawConnection) -> AsyncIterator[str]:
    """Topics that are listed twice, and that have a name and an id."""
    found = await topic_id(kafka, "adm-records")
    by_name = {"name": "adm-records", "topic_id": None}
    by_id = {"name": None, "topic_id": found}
    for topics in (
        [by_name, by_name],
        [by_id, by_id],
        [{"name": "adm-records", "topic_id": found}],
        [{"name": "missing", "topic_id": found}],
        [{"name": "missing", "topic_id": None}] * 2,
        [],
    ):
        response = await kafka.call(
            "metadata",
            12,
            topics=tuple(nested("metadata", 12, "MetadataRequestTopic")(**one) for one in topics),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        rows = [f"{row.name} {row.error_code.name}" for row in response.topics]
        yield f"metadata {[(one['name'], bool(one['topic_id'])) for one in topics]} {rows}"


async def _operations(kafka: RawConnection) -> AsyncIterator[str]:
    """The authorised operations, as neither broker has an authorizer."""
    for asked in (True, False):
        fields = {"include_cluster_authorized_operations": asked}
        response = await kafka.call("describe_cluster", 1, **fields)
        yield f"cluster operations {asked} {response.cluster_authorized_operations}"
        for version in (8, 9, 10, 11, 12):
            ids = {"topic_id": None} if version >= 10 else {}
            for topic in (
                {"name": "adm-records", **ids},
                {"name": "missing", **ids},
                {"name": "bad name", **ids},
                *([{"name": None, "topic_id": uuid.UUID(int=9)}] if version >= 12 else ()),
            ):
                response = await kafka.call(
                    "metadata",
                    version,
                    topics=(nested("metadata", version, "MetadataRequestTopic")(**topic),),
                    allow_auto_topic_creation=False,
                    include_topic_authorized_operations=asked,
                    **(fields if version <= 10 else {}),
                )
                whole = getattr(response, "cluster_authorized_operations", None)
                what = f"metadata v{version} {asked} {whole} {topic['name']}"
                yield _line(what, response.topics[0], "topic_authorized_operations")


async def _producers(kafka: RawConnection) -> AsyncIterator[str]:
    cases: Sequence[tuple[str, list[int]]] = (
        ("adm-records", [0, 0, 5]),
        ("missing", [0]),
        ("bad name", [0]),
    )
    for name, partitions in cases:
        kafka.send_request(describe_producers_request(name, partitions))
        response = await kafka.receive_response("describe_producers", 0)
        for row in response.topics[0].partitions:
            producers = [tuple(producer) for producer in producer_rows(row)]
            yield f"{_line(f'producers {name}', row, 'partition_index')} {producers}"
    for endpoint_type in (1, 2, 7):
        response = await kafka.call(
            "describe_cluster",
            1,
            include_cluster_authorized_operations=False,
            endpoint_type=endpoint_type,
        )
        yield f"{_line(f'cluster {endpoint_type}', response)} {len(response.brokers)}"


async def _moves(kafka: RawConnection) -> AsyncIterator[str]:
    for election_type in (0, 1, 2):
        for topic, partition in (("adm-records", 0), ("adm-records", 7), ("missing", 0)):
            response = await elect(kafka, {topic: (partition,)}, election_type)
            yield _line(f"elect {election_type}", response)
            for result in response.replica_election_results:
                for row in result.partition_result:
                    yield _line(f"elect {result.topic} {row.partition_id}", row)
    response = await elect(kafka, None)
    rows = [row for result in response.replica_election_results for row in result.partition_result]
    yield _line(f"elect all: {len(rows)} rows", response)
    for topic, partition, replicas in (
        ("adm-records", 0, (1,)),
        ("adm-records", 0, (1, 1)),
        ("adm-records", 0, (1, 9)),
        ("adm-records", 0, (-1,)),
        ("adm-records", 0, ()),
        ("adm-records", 0, None),
        ("adm-records", 7, (1,)),
        ("missing", 0, (1,)),
        ("missing", 0, None),
    ):
        row = await reassign(kafka, topic, partition, replicas)
        yield _line(f"reassign {topic} {partition} {replicas}", row)
    for wanted_topics in (None, {"adm-records": (0, 7)}, {"missing": (0,)}, {}):
        yield f"moving {await listed(kafka, wanted_topics)}"
