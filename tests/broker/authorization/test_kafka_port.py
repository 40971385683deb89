"""Requests that ACLs do not allow, on the Kafka port: the codes, and the parts left out, API by API.

The numbers are those of the vectors that Echoless was built by.
"""

from __future__ import annotations

import asyncio
import datetime
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.config.names import Authorizer, IdempotentWriteAcl
from echoless.broker.config.values import Address, Principals
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.network.request import ANONYMOUS
from echoless.protocol.acl import AclOperation
from echoless.protocol.record_batch import TRANSACTIONAL_BIT
from tests.broker.faults.lab import Lab
from tests.support.acls import GROUP, TRANSACTIONAL_ID, AclEditor
from tests.support.in_process import Running, in_process
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import ConnectionEndedError, RawConnection, nested
from tests.support.raw_produce import PartitionData
from tests.support.session_client import ask, found

READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DELETE, ALTER, DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
ALL, CLUSTER_ACTION = AclOperation.ALL, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE
NOT_ASKED, LATEST = -(2**31), -1
BATCH = plain_batch([b"value"]).encode()


def end_of(running: Running, topic: str) -> int:
    return running.broker.partitions[topic, 0].log.log_end_offset


def id_of(running: Running, topic: str) -> uuid.UUID:
    return running.broker.registry.topics[topic].topic_id


async def produce(
    kafka: RawConnection, *topics: str, batch: bytes = BATCH, version: int = 9
) -> dict[str, int]:
    answers = await kafka.produce(version, -1, [PartitionData(t, 0, batch) for t in topics])
    return {one.topic: one.error for one in answers}


async def fetch(
    kafka: RawConnection, *topics: str, replica_id: int = -1, wait_s: int = 0
) -> dict[str, int]:
    """The codes; waits for a record, if for anything."""
    topic_class = nested("fetch", 11, "FetchTopic")
    partition_class = nested("fetch", 11, "FetchPartition")
    wanted = tuple(
        topic_class(
            topic=name,
            partitions=(
                partition_class(
                    partition=0,
                    current_leader_epoch=-1,
                    fetch_offset=0,
                    log_start_offset=-1,
                    partition_max_bytes=1000,
                ),
            ),
        )
        for name in topics
    )
    response = await kafka.call(
        "fetch",
        11,
        replica_id=replica_id,
        max_wait=datetime.timedelta(seconds=wait_s),
        min_bytes=1 if wait_s else 0,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=wanted,
        forgotten_topics_data=(),
        rack_id="",
    )
    return {one.topic: one.partitions[0].error_code.value for one in response.responses}


async def metadata(
    kafka: RawConnection,
    *names: str,
    ids: tuple[uuid.UUID, ...] = (),
    everything: bool = False,
    may_create: bool = False,
) -> list[Any]:
    topic = nested("metadata", 12, "MetadataRequestTopic")
    wanted = [topic(topic_id=None, name=name) for name in names]
    wanted += [topic(topic_id=one, name=None) for one in ids]
    response = await kafka.call(
        "metadata",
        12,
        topics=None if everything else tuple(wanted),
        allow_auto_topic_creation=may_create,
        include_topic_authorized_operations=True,
    )
    return list(response.topics)


async def init_producer_id(kafka: RawConnection, transactional_id: str | None = None) -> int:
    response = await kafka.call(
        "init_producer_id",
        2,
        transactional_id=transactional_id,
        transaction_timeout=datetime.timedelta(seconds=1),
    )
    assert (response.producer_id >= 0) == (response.error_code.value == 0)
    return int(response.error_code.value)


class TestMetadata:
    """Metadata tells nothing that the client may not describe."""

    async def test_nothing_allowed(self, kafka: RawConnection, running: Running) -> None:
        """33: 29 without an id for a name, whether it exists or not; an empty list of all topics."""
        rows = await metadata(kafka, "t", "missing", may_create=True)
        told = [(one.name, one.topic_id, one.error_code.value, one.partitions) for one in rows]
        assert told == [("t", None, 29, ()), ("missing", None, 29, ())]
        assert {one.topic_authorized_operations for one in rows} == {NOT_ASKED}
        assert await metadata(kafka, everything=True) == []
        assert "missing" not in running.broker.registry.topics

    async def test_operations(self, kafka: RawConnection, acls: AclEditor) -> None:
        """34: Read sets Describe as well; topics that may not be described are left out of all."""
        await acls.allow(READ, "t")
        (row,) = await metadata(kafka, "t")
        assert (row.error_code.value, row.topic_authorized_operations) == (0, 264)
        assert [one.name for one in await metadata(kafka, everything=True)] == ["t"]
        await acls.allow(ALL, "t")
        (row,) = await metadata(kafka, "t")
        assert row.topic_authorized_operations == 3576

    async def test_by_id(self, kafka: RawConnection, running: Running, acls: AclEditor) -> None:
        """29 without the name; an unknown id is 100; a known one that is allowed has its name."""
        await acls.allow(DESCRIBE, "u")
        ids = (id_of(running, "t"), uuid.UUID(int=7), id_of(running, "u"))
        rows = await metadata(kafka, ids=ids)
        told = [(one.name, one.topic_id, one.error_code.value) for one in rows]
        assert told == [(None, ids[0], 29), (None, ids[1], 100), ("u", ids[2], 0)]

    async def test_auto_creation(
        self, kafka: RawConnection, running: Running, acls: AclEditor
    ) -> None:
        """Needs Create on the topic or the cluster, besides Describe."""
        await acls.allow(DESCRIBE, "new", prefixed=True)
        (row,) = await metadata(kafka, "new1", may_create=True)
        assert (row.name, row.error_code.value) == ("new1", 29)
        await acls.allow(CREATE, "new1")
        (row,) = await metadata(kafka, "new1", may_create=True)
        assert row.error_code.value == 0
        await acls.allow(CREATE)
        (row,) = await metadata(kafka, "new2", may_create=True)
        assert row.error_code.value == 0
        assert {"new1", "new2"} <= set(running.broker.registry.topics)

    async def test_denied_reading_does_not_hide(
        self, kafka: RawConnection, acls: AclEditor
    ) -> None:
        """45: Deny implies nothing."""
        await acls.deny(READ, "t")
        await acls.allow(DESCRIBE, "t")
        (row,) = await metadata(kafka, "t")
        assert row.error_code.value == 0
        assert await fetch(kafka, "t") == {"t": 29}

    async def test_cluster_operations(self, kafka: RawConnection, acls: AclEditor) -> None:
        """DescribeCluster answers everyone; the bits are 0 without Describe."""

        async def operations() -> int:
            response = await kafka.call(
                "describe_cluster", 0, include_cluster_authorized_operations=True
            )
            assert response.error_code.value == 0
            assert len(response.brokers) == 1
            return int(response.cluster_authorized_operations)

        assert await operations() == 0
        await acls.allow(CREATE)
        assert await operations() == 0
        await acls.allow(DESCRIBE)
        assert await operations() == 1 << CREATE | 1 << DESCRIBE
        await acls.allow(ALL)
        assert await operations() == 8096


class TestProduce:
    """Write on the topic, and what an id takes."""

    async def test_write_is_enough_for_an_idempotent_producer(
        self, kafka: RawConnection, running: Running, acls: AclEditor
    ) -> None:
        """35, 36: Write on a topic gives an id; of two topics the allowed one is stored."""
        await acls.allow(WRITE, "t")
        assert await init_producer_id(kafka) == 0
        assert await produce(kafka, "t") == {"t": 0}
        assert await produce(kafka, "t", "u") == {"t": 0, "u": 29}
        assert (end_of(running, "t"), end_of(running, "u")) == (2, 0)

    async def test_topics_by_id(
        self, kafka: RawConnection, running: Running, acls: AclEditor
    ) -> None:
        """Version 13: an unknown id is 100, whatever is allowed."""
        await acls.allow(WRITE, "t")
        ids = [id_of(running, "t"), id_of(running, "u"), uuid.UUID(int=7)]
        answers = await kafka.produce(13, -1, [PartitionData(one, 0, BATCH) for one in ids])
        assert [one.error for one in answers if one.topic == ids[0]] == [0]
        assert [one.error for one in answers if one.topic == ids[1]] == [29]
        assert [one.error for one in answers if one.topic == ids[2]] == [100]

    async def test_unknown_topics_are_denied_like_known_ones(self, kafka: RawConnection) -> None:
        """The answer does not tell what exists."""
        assert await produce(kafka, "t", "missing") == {"t": 29, "missing": 29}

    @pytest.mark.parametrize(
        ("grants", "init", "written"),
        [
            ([("allow", READ, "t", {})], 31, 29),  # 37
            ([("allow", IDEMPOTENT_WRITE, "kafka-cluster", {})], 0, 29),  # 38
            (
                [("allow", WRITE, "or", {"prefixed": True}), ("deny", WRITE, "orders", {})],
                0,
                29,
            ),  # 39
            (
                [("allow", WRITE, "orders", {}), ("deny", WRITE, "or", {"prefixed": True})],
                31,
                29,
            ),  # 40
            (
                [("allow", WRITE, "*", {}), ("deny", WRITE, "or", {"prefixed": True})],
                0,
                29,
            ),  # 41
            ([("allow", WRITE, "orders", {}), ("deny", WRITE, "*", {})], 31, 29),  # 42
            ([("allow", WRITE, "orders", {})], 0, 0),
            ([("allow", ALL, "*", {})], 0, 0),
        ],
        ids=["37", "38", "39", "40", "41", "42", "literal", "wildcard"],
    )
    async def test_producer_ids(
        self,
        kafka: RawConnection,
        acls: AclEditor,
        grants: list[tuple[str, AclOperation, str, dict[str, Any]]],
        init: int,
        written: int,
    ) -> None:
        """An id takes Write on any topic that is not denied in whole, or IdempotentWrite."""
        for grant, operation, name, more in grants:
            await getattr(acls, grant)(operation, name, **more)
        assert await init_producer_id(kafka) == init
        assert await produce(kafka, "orders") == {"orders": written}

    async def test_transactions(
        self, kafka: RawConnection, running: Running, acls: AclEditor
    ) -> None:
        """43: a transactional batch is refused for all partitions, also beside a denied topic."""
        await acls.allow(WRITE, "t")
        transactional = replace(plain_batch([b"value"]), attributes=TRANSACTIONAL_BIT).encode()
        for topics in (("t",), ("t", "u")):
            codes = await produce(kafka, *topics, batch=transactional)
            assert codes == dict.fromkeys(topics, 53)
        assert await init_producer_id(kafka, "app") == 53
        assert (end_of(running, "t"), end_of(running, "u")) == (0, 0)

    async def test_without_an_answer(
        self, kafka: RawConnection, running: Running, acls: AclEditor
    ) -> None:
        """44: acks=0 ends the connection; what is allowed is stored before."""
        await acls.allow(WRITE, "t")
        kafka.send_produce(9, 0, [PartitionData("t", 0, BATCH), PartitionData("u", 0, BATCH)])
        with pytest.raises(ConnectionEndedError):
            await kafka.receive()
        assert (end_of(running, "t"), end_of(running, "u")) == (1, 0)

    async def test_a_revoked_right_ends_with_the_next_request(
        self, kafka: RawConnection, acls: AclEditor
    ) -> None:
        """A connection's memory of its rights is dropped at each change."""
        await acls.allow(WRITE, "t")
        await acls.allow(READ, "t")
        assert await produce(kafka, "t") == {"t": 0}
        await acls.revoke(WRITE, "t")
        assert await produce(kafka, "t") == {"t": 29}
        assert await init_producer_id(kafka) == 31
        await acls.allow(WRITE, "t")
        assert await produce(kafka, "t") == {"t": 0}


class TestFetch:
    """Read on the topic."""

    async def test_partly_denied(self, kafka: RawConnection, acls: AclEditor) -> None:
        """29 for each partition that may not be read."""
        await acls.allow(READ, "t")
        assert await fetch(kafka, "t", "u", "missing") == {"t": 0, "u": 29, "missing": 29}

    async def test_the_rest_waits_for_records(
        self, kafka: RawConnection, running: Running, acls: AclEditor
    ) -> None:
        """Answered at once, a consumer with one topic too many would ask again and again."""
        await acls.allow(READ, "t")
        await acls.allow(WRITE, "t")
        producer = await RawConnection.open(running.kafka_address)
        answer = asyncio.create_task(fetch(kafka, "t", "u", wait_s=60))
        partition = running.broker.partitions["t", 0]
        while not partition.waiters.data:
            assert not answer.done()
            await asyncio.sleep(0)
        assert await produce(producer, "t") == {"t": 0}
        assert await answer == {"t": 0, "u": 29}
        await producer.close()

    async def test_a_session_asks_every_time(
        self, kafka: RawConnection, running: Running, acls: AclEditor
    ) -> None:
        """Rows that may not be read stay in it, by name and by id, and are read when they may be."""
        await acls.allow(READ, "t")
        await acls.allow(WRITE, "t")
        ids = {"t": id_of(running, "t"), "u": id_of(running, "u")}
        for version, keys in ((12, {"t": "t", "u": "u"}), (13, ids)):
            end = end_of(running, "t")
            rows = {keys["u"]: [(0, 0)], keys["t"]: [(0, end)]}
            response = await ask(kafka, (0, 0), rows, version=version)
            assert {key[0]: row[0] for key, row in found(response).items()} == {
                keys["t"]: 0,
                keys["u"]: 29,
            }
            s = response.session_id
            for epoch in (1, 2):
                response = await ask(kafka, (s, epoch), version=version)
                assert found(response) == {(keys["u"], 0): (29, 0, -1, -1)}
            await acls.allow(READ, "u")
            assert [*found(await ask(kafka, (s, 3), version=version))] == [(keys["u"], 0)]
            assert found(await ask(kafka, (s, 4), version=version)) == {}
            await acls.revoke(READ, "u")
            await acls.revoke(READ, "t")
            response = await ask(kafka, (s, 5), version=version)
            assert {row[0] for row in found(response).values()} == {29}
            await acls.allow(READ, "t")
            response = await ask(kafka, (s, 6), forget={keys["u"]: [0]}, version=version)
            assert found(response) == {(keys["t"], 0): (0, 0, end, 0)}
            assert await produce(kafka, "t") == {"t": 0}
            response = await ask(kafka, (s, 7), version=version, max_wait_ms=60_000)
            assert found(response) == {(keys["t"], 0): (0, 1, end + 1, 0)}

    async def test_a_session_of_nothing_allowed(
        self, kafka: RawConnection, acls: AclEditor
    ) -> None:
        """It is opened, and answers at once with the codes; what it forgets last is answered once more."""
        response = await ask(kafka, (0, 0), {"t": [(0, 0)], "u": [(0, 0)]}, max_wait_ms=60_000)
        s = response.session_id
        for epoch in (1, 2):
            assert s > 0
            assert {row[0] for row in found(response).values()} == {29}
            response = await ask(kafka, (s, epoch), max_wait_ms=60_000)
        await acls.allow(READ, "t")
        response = await ask(kafka, (s, 3))
        assert [row[0] for row in found(response).values()] == [0, 29]
        forget = {"t": [0], "u": [0]}
        response = await ask(kafka, (s, 4), {"t": [(0, 0)], "u": [(0, 0)]}, forget)
        assert response.session_id == 0
        assert [row[0] for row in found(response).values()] == [0, 29]

    async def test_hosts(self, kafka: RawConnection, acls: AclEditor) -> None:
        """46: an entry for another host allows nothing here."""
        await acls.allow(READ, "t", host="10.0.0.1")
        assert await fetch(kafka, "t") == {"t": 29}
        await acls.allow(READ, "t", host="127.0.0.1")
        assert await fetch(kafka, "t") == {"t": 0}

    async def test_ipv6(self, tmp_path: Path) -> None:
        """47: the address of a client by IPv6 is compared as Java writes it."""
        listen = {"listen": (Address("::1", 0),)}
        async with in_process(tmp_path, authorizer=Authorizer.ACL, **listen) as running:
            await running.broker.services.topics.create(NewTopic(name="t"))
            port = running.kafka_address.rpartition(":")[2]
            kafka = await RawConnection.open(f"::1:{port}")
            assert await fetch(kafka, "t") == {"t": 29}
            await AclEditor(running.broker.access).allow(READ, "t", host="0:0:0:0:0:0:0:1")
            assert await fetch(kafka, "t") == {"t": 0}
            await kafka.close()


async def test_fetching_as_a_replica(kafka: RawConnection, acls: AclEditor) -> None:
    """48: 29 without ClusterAction, even with Read; with it Read is not asked for (CVE-2018-1288)."""
    await acls.allow(READ, "t")
    assert await fetch(kafka, "t", replica_id=2) == {"t": 29}
    await acls.allow(CLUSTER_ACTION)
    assert await fetch(kafka, "t", "u", replica_id=2) == {"t": 0, "u": 0}


async def test_a_super_user_may_do_everything(tmp_path: Path) -> None:
    """49: whatever is denied."""
    settings = {"authorizer": Authorizer.ACL, "super_users": Principals([ANONYMOUS])}
    async with in_process(tmp_path, **settings) as running:
        await running.broker.services.topics.create(NewTopic(name="t"))
        acls = AclEditor(running.broker.access)
        await acls.deny(ALL, "*", principal="User:*")
        await acls.deny(ALL, principal="User:*")
        kafka = await RawConnection.open(running.kafka_address)
        assert await init_producer_id(kafka) == 0
        assert await produce(kafka, "t") == {"t": 0}
        assert await fetch(kafka, "t") == {"t": 0}
        await kafka.close()


async def test_what_no_acl_is_about_may_be_open(tmp_path: Path) -> None:
    """50: an ACL for someone else closes a topic."""
    settings = {"authorizer": Authorizer.ACL, "allow_everyone_if_no_acl_found": True}
    async with in_process(tmp_path, **settings) as running:
        for name in ("t", "u"):
            await running.broker.services.topics.create(NewTopic(name=name))
        await AclEditor(running.broker.access).allow(READ, "t", principal="User:bob")
        kafka = await RawConnection.open(running.kafka_address)
        assert await fetch(kafka, "t", "u") == {"t": 29, "u": 0}
        assert await init_producer_id(kafka) == 0
        await kafka.close()


async def test_the_rule_before_kafka_2_8(tmp_path: Path) -> None:
    """idempotent_write_acl=cluster: ids, and batches of producers with one, need IdempotentWrite."""
    settings = {
        "authorizer": Authorizer.ACL,
        "idempotent_write_acl": IdempotentWriteAcl.CLUSTER,
    }
    idempotent = plain_batch([b"v"], producer_id=7, producer_epoch=0, base_sequence=0).encode()
    async with in_process(tmp_path, **settings) as running:
        await running.broker.services.topics.create(NewTopic(name="t"))
        acls = AclEditor(running.broker.access)
        await acls.allow(WRITE, "t")
        kafka = await RawConnection.open(running.kafka_address)
        assert await init_producer_id(kafka) == 31
        assert await produce(kafka, "t") == {"t": 0}
        assert await produce(kafka, "t", batch=idempotent) == {"t": 31}
        await acls.allow(IDEMPOTENT_WRITE)
        assert await init_producer_id(kafka) == 0
        assert await produce(kafka, "t", batch=idempotent) == {"t": 0}
        assert end_of(running, "t") == 2
        await kafka.close()


class TestTopics:
    """Creating, deleting and altering topics."""

    async def create(self, kafka: RawConnection, *names: str) -> dict[str, Any]:
        topic = nested("create_topics", 7, "CreatableTopic")
        response = await kafka.call(
            "create_topics",
            7,
            topics=tuple(
                topic(name=name, num_partitions=2, replication_factor=1, assignments=(), configs=())
                for name in names
            ),
            timeout=datetime.timedelta(seconds=10),
            validate_only=False,
        )
        return {one.name: one for one in response.topics}

    async def test_create(self, kafka: RawConnection, running: Running, acls: AclEditor) -> None:
        """51: by the topic's right; without DescribeConfigs the configuration is left out."""
        await acls.allow(CREATE, "x", prefixed=True)
        rows = await self.create(kafka, "xa", "y")
        made = rows["xa"]
        assert made.error_code.value == 0
        assert made.topic_config_error_code == 29
        assert (made.num_partitions, made.replication_factor, made.configs) == (-1, -1, ())
        assert rows["y"].error_code.value == 29
        assert {"xa"} == set(running.broker.registry.topics) - {"t", "u", "orders"}
        await acls.allow(CREATE)
        await acls.allow(DESCRIBE_CONFIGS, "y")
        made = (await self.create(kafka, "y"))["y"]
        assert (made.error_code.value, made.topic_config_error_code) == (0, 0)
        assert made.num_partitions == 2
        assert made.configs

    async def delete(self, kafka: RawConnection, *keys: str | uuid.UUID) -> list[Any]:
        topic = nested("delete_topics", 6, "DeleteTopicState")
        response = await kafka.call(
            "delete_topics",
            6,
            topics=tuple(
                topic(name=key, topic_id=None)
                if isinstance(key, str)
                else topic(name=None, topic_id=key)
                for key in keys
            ),
            timeout=datetime.timedelta(seconds=10),
        )
        return [(one.name, one.topic_id, one.error_code.value) for one in response.responses]

    async def test_delete(self, kafka: RawConnection, running: Running, acls: AclEditor) -> None:
        """52: by id the name is null without Describe; the topics that are allowed are deleted."""
        t, u = id_of(running, "t"), id_of(running, "u")
        assert await self.delete(kafka, t) == [(None, t, 29)]
        await acls.allow(DESCRIBE, "t")
        assert await self.delete(kafka, t) == [("t", t, 29)]
        await acls.allow(DELETE, "u")
        await acls.deny(DESCRIBE, "u")
        assert await self.delete(kafka, u) == [(None, u, 29)]
        rows = await self.delete(kafka, "u", "orders", uuid.UUID(int=7))
        assert sorted(rows, key=str) == sorted(
            [("u", u, 0), ("orders", None, 29), (None, uuid.UUID(int=7), 100)], key=str
        )
        assert set(running.broker.registry.topics) == {"t", "orders"}

    async def test_delete_by_name_before_ids(
        self, kafka: RawConnection, running: Running, acls: AclEditor
    ) -> None:
        """Version 1 names topics in another field."""
        await acls.allow(DELETE, "u")
        response = await kafka.call(
            "delete_topics",
            1,
            topic_names=("t", "u"),
            timeout=datetime.timedelta(seconds=10),
        )
        rows = {one.name: one.error_code.value for one in response.responses}
        assert rows == {"t": 29, "u": 0}
        assert set(running.broker.registry.topics) == {"t", "orders"}

    async def test_create_partitions(
        self, kafka: RawConnection, running: Running, acls: AclEditor
    ) -> None:
        """Alter on the topic."""
        await acls.allow(ALTER, "t")
        topic = nested("create_partitions", 1, "CreatePartitionsTopic")
        response = await kafka.call(
            "create_partitions",
            1,
            topics=tuple(topic(name=name, count=2, assignments=None) for name in ("t", "u")),
            timeout=datetime.timedelta(seconds=10),
            validate_only=False,
        )
        rows = {one.name: one.error_code.value for one in response.results}
        assert rows == {"t": 0, "u": 29}
        assert running.broker.registry.topics["u"].partition_count == 1

    async def test_configurations(self, kafka: RawConnection, acls: AclEditor) -> None:
        """DescribeConfigs and AlterConfigs: 29 for topics, 31 for brokers; altering implies describing."""
        assert await self.describe_configs(kafka) == {"t": 29, "1": 31}
        assert await self.alter_configs(kafka) == {"t": 29, "1": 31}
        assert await self.incremental_alter_configs(kafka) == {"t": 29, "1": 31}
        await acls.allow(ALTER_CONFIGS, "t")
        await acls.allow(ALTER_CONFIGS)
        assert await self.describe_configs(kafka) == {"t": 0, "1": 0}
        assert await self.alter_configs(kafka) == {"t": 0, "1": 0}
        assert await self.incremental_alter_configs(kafka) == {"t": 0, "1": 0}

    async def describe_configs(self, kafka: RawConnection) -> dict[str, int]:
        resource = nested("describe_configs", 1, "DescribeConfigsResource")
        response = await kafka.call(
            "describe_configs",
            1,
            resources=tuple(
                resource(resource_type=kind, resource_name=name, configuration_keys=None)
                for kind, name in ((2, "t"), (4, "1"))
            ),
            include_synonyms=False,
        )
        return {one.resource_name: one.error_code.value for one in response.results}

    async def alter_configs(self, kafka: RawConnection) -> dict[str, int]:
        resource = nested("alter_configs", 0, "AlterConfigsResource")
        response = await kafka.call(
            "alter_configs",
            0,
            resources=tuple(
                resource(resource_type=kind, resource_name=name, configs=())
                for kind, name in ((2, "t"), (4, "1"))
            ),
            validate_only=False,
        )
        return {one.resource_name: one.error_code.value for one in response.responses}

    async def incremental_alter_configs(self, kafka: RawConnection) -> dict[str, int]:
        resource = nested("incremental_alter_configs", 0, "AlterConfigsResource")
        response = await kafka.call(
            "incremental_alter_configs",
            0,
            resources=tuple(
                resource(resource_type=kind, resource_name=name, configs=())
                for kind, name in ((2, "t"), (4, "1"))
            ),
            validate_only=False,
        )
        return {one.resource_name: one.error_code.value for one in response.responses}


class TestPartitions:
    """APIs whose rows are partitions."""

    async def rows(self, kafka: RawConnection, api: str) -> dict[str, int]:
        """The codes of partition 0 of `t` and `u`."""
        if api == "list_offsets":
            topic, partition = (
                nested(api, 1, "ListOffsetsTopic"),
                nested(api, 1, "ListOffsetsPartition"),
            )
            topics = tuple(
                topic(name=name, partitions=(partition(partition_index=0, timestamp=LATEST),))
                for name in ("t", "u")
            )
            response = await kafka.call(api, 1, replica_id=-1, topics=topics)
        elif api == "delete_records":
            topic, partition = (
                nested(api, 0, "DeleteRecordsTopic"),
                nested(api, 0, "DeleteRecordsPartition"),
            )
            topics = tuple(
                topic(name=name, partitions=(partition(partition_index=0, offset=0),))
                for name in ("t", "u")
            )
            response = await kafka.call(
                api, 0, topics=topics, timeout=datetime.timedelta(seconds=1)
            )
        elif api == "offset_for_leader_epoch":
            topic, partition = (
                nested(api, 3, "OffsetForLeaderTopic"),
                nested(api, 3, "OffsetForLeaderPartition"),
            )
            topics = tuple(
                topic(
                    topic=name,
                    partitions=(partition(partition=0, current_leader_epoch=-1, leader_epoch=0),),
                )
                for name in ("t", "u")
            )
            response = await kafka.call(api, 3, replica_id=-1, topics=topics)
            return {one.topic: one.partitions[0].error_code.value for one in response.topics}
        else:
            topic = nested(api, 0, "TopicRequest")
            topics = tuple(topic(name=name, partition_indexes=(0,)) for name in ("t", "u"))
            response = await kafka.call(api, 0, topics=topics)
        return {one.name: one.partitions[0].error_code.value for one in response.topics}

    @pytest.mark.parametrize(
        ("api", "operation"),
        [
            ("list_offsets", DESCRIBE),
            ("delete_records", DELETE),
            ("offset_for_leader_epoch", DESCRIBE),
            ("describe_producers", READ),
        ],
    )
    async def test_rows(
        self, kafka: RawConnection, acls: AclEditor, api: str, operation: AclOperation
    ) -> None:
        """29 in the rows of the topic that is not allowed."""
        assert await self.rows(kafka, api) == {"t": 29, "u": 29}
        await acls.allow(operation, "t")
        assert await self.rows(kafka, api) == {"t": 0, "u": 29}

    async def test_offsets_of_epochs_for_brokers(
        self, kafka: RawConnection, acls: AclEditor
    ) -> None:
        """ClusterAction allows all topics."""
        await acls.allow(CLUSTER_ACTION)
        assert await self.rows(kafka, "offset_for_leader_epoch") == {"t": 0, "u": 0}

    @pytest.mark.parametrize(
        ("api", "fields", "operation"),
        [
            (
                "elect_leaders",
                {"election_type": 0, "topic_partitions": None, "timeout": datetime.timedelta(1)},
                ALTER,
            ),
            (
                "update_features",
                {
                    "timeout": datetime.timedelta(1),
                    "feature_updates": (
                        nested("update_features", 0, "FeatureUpdateKey")(
                            feature="x", max_version_level=1, allow_downgrade=False
                        ),
                    ),
                },
                ALTER,
            ),
            (
                "alter_partition_reassignments",
                {"timeout": datetime.timedelta(1), "topics": ()},
                ALTER,
            ),
            (
                "list_partition_reassignments",
                {"timeout": datetime.timedelta(1), "topics": None},
                DESCRIBE,
            ),
            ("describe_log_dirs", {"topics": None}, DESCRIBE),
        ],
    )
    async def test_of_the_cluster(
        self,
        kafka: RawConnection,
        acls: AclEditor,
        api: str,
        fields: dict[str, Any],
        operation: AclOperation,
    ) -> None:
        """31 for the whole request."""
        version = {"elect_leaders": 1, "describe_log_dirs": 3}.get(api, 0)
        assert (await kafka.call(api, version, **fields)).error_code.value == 31
        await acls.allow(operation)
        assert (await kafka.call(api, version, **fields)).error_code.value == 0

    @pytest.mark.parametrize("operation", [ALTER, CLUSTER_ACTION])
    async def test_write_txn_markers(
        self, kafka: RawConnection, acls: AclEditor, operation: AclOperation
    ) -> None:
        """31 for each partition."""
        topic = nested("write_txn_markers", 1, "WritableTxnMarkerTopic")
        marker = nested("write_txn_markers", 1, "WritableTxnMarker")(
            producer_id=7,
            producer_epoch=0,
            transaction_result=True,
            topics=(topic(name="missing", partition_indexes=(0,)),),
            coordinator_epoch=0,
        )

        async def code() -> int:
            answer = await kafka.call("write_txn_markers", 1, markers=(marker,))
            found: int = answer.markers[0].topics[0].partitions[0].error_code.value
            return found

        assert await code() == 31
        await acls.allow(operation)
        assert await code() == 3


class TestGroups:
    """Coordinators and committed offsets."""

    async def test_coordinators(self, kafka: RawConnection, acls: AclEditor) -> None:
        """30 for a group and 53 for a transactional id, by key from version 4 on."""
        one = await kafka.call("find_coordinator", 1, key="g", key_type=0)
        assert one.error_code.value == 30
        one = await kafka.call("find_coordinator", 1, key="app", key_type=1)
        assert one.error_code.value == 53
        await acls.allow(DESCRIBE, "g", resource_type=GROUP)
        one = await kafka.call("find_coordinator", 1, key="g", key_type=0)
        assert one.error_code.value == 0
        several = await kafka.call("find_coordinator", 4, key_type=0, coordinator_keys=("g", "h"))
        rows = {row.key: (row.error_code.value, row.node_id) for row in several.coordinators}
        assert rows == {"g": (0, 1), "h": (30, -1)}
        await acls.allow(WRITE, "app", resource_type=TRANSACTIONAL_ID)
        one = await kafka.call("find_coordinator", 1, key="app", key_type=1)
        assert "ACLs" not in str(one.error_message)  # the refusal of every transaction

    async def test_committed_offsets(
        self, running: Running, kafka: RawConnection, acls: AclEditor
    ) -> None:
        """30 for the group, then 29 for a topic."""
        topic = nested("offset_fetch", 5, "OffsetFetchRequestTopic")
        topics = tuple(topic(name=name, partition_indexes=(0,)) for name in ("t", "u"))

        async def ask(version: int) -> tuple[int, dict[str, int]]:
            cls = nested("offset_fetch", version, "OffsetFetchRequestTopic")
            wanted = tuple(cls(name=one.name, partition_indexes=(0,)) for one in topics)
            response = await kafka.call("offset_fetch", version, group_id="g", topics=wanted)
            codes = {one.name: one.partitions[0].error_code.value for one in response.topics}
            return getattr(response, "error_code", response).value if version > 1 else 0, codes

        await running.broker.groups.topic.until_created()
        assert (await ask(5))[0] == 30
        assert await ask(1) == (0, {"t": 30, "u": 30})
        await acls.allow(DESCRIBE, "g", resource_type=GROUP)
        await acls.allow(READ, "t")
        assert await ask(5) == (0, {"t": 0, "u": 29})

    async def test_committed_offsets_of_several_groups(
        self, running: Running, kafka: RawConnection, acls: AclEditor
    ) -> None:
        """Each group has its own answer."""
        await running.broker.groups.topic.until_created()
        await acls.allow(DESCRIBE, "g", resource_type=GROUP)
        await acls.allow(DESCRIBE, "t")
        group = nested("offset_fetch", 8, "OffsetFetchRequestGroup")
        topic = nested("offset_fetch", 8, "OffsetFetchRequestTopics")
        topics = tuple(topic(name=name, partition_indexes=(0,)) for name in ("t", "u"))
        response = await kafka.call(
            "offset_fetch",
            8,
            groups=tuple(group(group_id=name, topics=topics) for name in ("g", "h")),
            require_stable=False,
        )
        allowed, denied = response.groups
        assert (allowed.error_code.value, denied.error_code.value) == (0, 30)
        codes = {one.name: one.partitions[0].error_code.value for one in allowed.topics}
        assert codes == {"t": 0, "u": 29}


@pytest.mark.parametrize("action", ["error", "error_after"])
async def test_a_fault_rule_names_no_topic_that_may_not_be_described(
    running: Running, kafka: RawConnection, acls: AclEditor, action: str
) -> None:
    """Neither among all topics, nor by its id."""
    await acls.allow(DESCRIBE, "t")
    Lab(running).add({"type": action, "code": 5}, {"api": "metadata"})
    found = await metadata(kafka, everything=True)
    assert [(one.name, int(one.error_code)) for one in found] == [("t", 5)]
    ids = id_of(running, "t"), id_of(running, "u")
    found = await metadata(kafka, ids=ids)
    assert [(one.name, one.topic_id) for one in found] == [("t", ids[0]), (None, ids[1])]
