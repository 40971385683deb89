"""The answers of the admin port, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from echoless.broker.admin.documents import producer_document
from echoless.broker.admin.server import AdminServer
from echoless.broker.clock import Clock
from echoless.broker.config.values import Address
from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr
from echoless.broker.metadata.registration import BrokerInfo
from echoless.broker.metadata.topic import Topic
from echoless.broker.network.server import bind, bound_address
from echoless.broker.network.turns import ROWS_PER_TURN
from echoless.broker.state_topics.shard_state import Unserved
from echoless.coordinators.groups.answers import CommittedOffset, ListedGroup
from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.protocol.errors import ErrorCode
from echoless.storage.directory_checkpoints import PartitionOffsets
from echoless.storage.scrub import Damage
from echoless.storage.strays import Stray
from tests.broker.admin.admin_client import AdminClient
from tests.broker.admin.fake_broker import TOPIC_ID, FakeBroker

_ENTRY = ProducerEntry(2, 0, 1234, (BatchMetadata(1, 11, 1, 99, 0xABC),))


async def test_health_and_readiness(admin: AdminClient) -> None:
    """A broker that serves is healthy and ready, and says who it is."""
    assert await admin.get("/health") == (200, {"status": "ok"})
    assert await admin.get("/ready") == (
        200,
        {
            "status": "ready",
            "broker_id": 1,
            "cluster_id": "cluster",
            "partitions": 3,
            "leading": 3,
        },
    )


async def test_what_somebody_must_look_at_is_listed(admin: AdminClient) -> None:
    """Everything that needs an operator's attention is listed while the broker serves.

    Its bytes are a metric.
    """
    stray = Stray(
        topic="orders",
        partition=2,
        topic_id=TOPIC_ID,
        reason="there is no topic orders",
        set_aside_ms=7,
        offsets=PartitionOffsets(0, 0, 0),
        records=5,
        name="orders-2.x-stray",
        size_bytes=123,
    )
    admin.broker.logs.strays.append(stray)
    status, body = await admin.get("/health")
    assert (status, body["status"]) == (200, "ok")
    assert body["strays"] == [
        {
            "name": "orders-2.x-stray",
            "topic": "orders",
            "partition": 2,
            "records": 5,
            "size_bytes": 123,
            "set_aside_ms": 7,
            "reason": "there is no topic orders",
        }
    ]
    damage = Damage("orders", 1, "/data/orders-1/x.log", 42, "the CRC does not match")
    admin.broker.logs.damaged[damage.file] = damage
    _, body = await admin.get("/health")
    assert body["damaged"] == [damage._asdict()]
    unserved = Unserved(3, "failed", "the record at offset 7 cannot be read")
    admin.broker.groups.without_coordinator.append(unserved)
    _, body = await admin.get("/health")
    assert body["unserved_groups"] == [unserved._asdict()]
    assert "unserved_transactional_ids" not in body
    admin.broker.transactions.without_coordinator.append(unserved)
    _, body = await admin.get("/health")
    assert body["unserved_transactional_ids"] == [unserved._asdict()]
    text = await admin.text("/metrics")
    assert "echoless_damaged_segments 1.0\n" in text
    assert "echoless_strays 1.0\n" in text
    assert "echoless_stray_bytes 123.0\n" in text


@pytest.mark.slow
async def test_many_rows_are_read_in_turns_and_encoded_beside_the_loop(
    admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are served in between: no page holds the loop for ten thousand rows."""
    log = admin.broker.partitions["orders", 0].log
    for producer_id in range(10_000):
        log.producers.put(producer_id, _ENTRY)
    turns, seen, threads = [0], set[int](), list[int]()

    async def count_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    def document(*arguments: Any) -> dict[str, Any]:
        seen.add(turns[0])
        return producer_document(*arguments)

    def dumps(value: object) -> str:
        threads.append(threading.get_ident())
        return json.dumps(value)

    monkeypatch.setattr("echoless.broker.admin.readings.producer_document", document)
    monkeypatch.setattr("echoless.broker.admin.answer.json", SimpleNamespace(dumps=dumps))
    counting = asyncio.create_task(count_turns())
    status, body = await admin.get("/producers/orders/0?limit=10000")
    counting.cancel()
    assert (status, len(body["producers"])) == (200, 10_000)
    assert len(seen) >= 10_000 // ROWS_PER_TURN
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_failed_storage_is_neither_healthy_nor_ready(admin: AdminClient, path: str) -> None:
    """A broker whose disk has failed wants a restart, and no clients."""
    admin.broker.logs.failure = OSError("disk full")
    expected = {"status": "storage failed", "error": "disk full"}
    assert await admin.get(path) == (503, expected)


async def test_a_broker_that_can_acknowledge_nothing_is_not_ready(admin: AdminClient) -> None:
    """It says why; it is healthy, since a restart would not help."""
    admin.broker.membership.unready_reason = "ZooKeeper is away"
    admin.broker.membership.unproved_s = 12.5
    assert await admin.get("/ready") == (503, {"status": "not ready", "error": "ZooKeeper is away"})
    assert await admin.get("/health") == (200, {"status": "ok"})
    text = await admin.text("/metrics")
    assert "echoless_ready 0.0" in text
    assert "echoless_unproved_session_seconds 12.5" in text
    assert "echoless_active_controller 0.0" in text


async def test_clocks_that_differ_are_in_the_metrics(admin: AdminClient) -> None:
    """How far this broker's is ahead of each other one's, and which others are ahead of it."""
    admin.broker.membership.clocks_ahead_ms = {2: 61_500, 3: -20}
    text = await admin.text("/metrics")
    assert 'echoless_clock_ahead_seconds{other="2"} 61.5' in text
    assert 'echoless_clock_ahead_seconds{other="3"} -0.02' in text


async def test_a_failed_disk_is_not_ready_in_the_metrics_either(admin: AdminClient) -> None:
    """The alert needs the number that the page gives to orchestration."""
    assert "echoless_ready 1.0" in await admin.text("/metrics")
    admin.broker.logs.failure = OSError("disk full")
    assert "echoless_ready 0.0" in await admin.text("/metrics")


async def test_missing_markers_are_measured(admin: AdminClient) -> None:
    """How many, and for how long the oldest has been missing."""
    assert "echoless_transaction_markers_missing 0.0\n" in await admin.text("/metrics")
    admin.broker.transactions.missing_markers = 3
    admin.broker.transactions.longest_marker_wait_s = 1.5
    text = await admin.text("/metrics")
    assert "echoless_transaction_markers_missing 3.0\n" in text
    assert "echoless_transaction_marker_wait_seconds 1.5\n" in text


async def test_groups_show_those_that_this_broker_coordinates(admin: AdminClient) -> None:
    """And whether these are all: while a part of the offsets topic is loaded, they are not."""
    admin.broker.groups.groups = [ListedGroup("billing", "consumer", "Stable", "classic"), None]
    row = {"group": "billing", "state": "Stable", "protocol_type": "consumer", "type": "classic"}
    unknown = {"groups": [{**row, "lag": None, "held_back": 0}], "complete": True}
    assert await admin.get("/groups") == (200, unknown)
    admin.broker.groups.offsets = [
        CommittedOffset("billing", "orders", 0, 4),
        CommittedOffset("billing", "orders", 1, 7),
        CommittedOffset("billing", "elsewhere", 0, 1),
    ]
    found = {**row, "lag": 7, "held_back": 5}
    assert (await admin.get("/groups"))[1]["groups"] == [found]
    admin.broker.groups.ready = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await admin.get("/groups"))[1]["complete"] is False


async def test_topics_show_the_partitions_in_order(admin: AdminClient) -> None:
    """Topics and their partitions are sorted, each with its offsets and replicas."""
    status, body = await admin.get("/topics")
    assert status == 200
    assert [(t["name"], [p["partition"] for p in t["partitions"]]) for t in body["topics"]] == [
        ("bills", [0]),
        ("orders", [0, 1]),
    ]
    assert body["topics"][0]["id"] == str(TOPIC_ID)
    assert body["topics"][0]["partitions"][0] == {
        "partition": 0,
        "leader": 1,
        "leader_epoch": 3,
        "replicas": [1, 2],
        "isr": [1],
        "log_start_offset": 0,
        "high_watermark": 9,
        "last_stable_offset": 6,
        "held_back_by": None,
        "log_end_offset": 10,
        "size_bytes": 500,
        "producers": 0,
    }


async def test_producers_show_the_whole_window(admin: AdminClient) -> None:
    """A producer is shown with every remembered batch: sequences, offsets, checksum."""
    producers = admin.broker.partitions["orders", 1].log.producers
    producers.put(7, _ENTRY)
    producers.put(8, _ENTRY)
    status, body = await admin.get("/producers/orders/1?producer_id=7")
    assert (status, body["topic"], body["partition"], body["count"]) == (200, "orders", 1, 2)
    (producer,) = body["producers"]
    assert (producer["producer_id"], producer["producer_epoch"]) == (7, 2)
    assert producer["window"] == [
        {
            "base_sequence": 0,
            "last_sequence": 1,
            "base_offset": 10,
            "last_offset": 11,
            "timestamp": 99,
            "crc": 0xABC,
        }
    ]


async def test_producers_are_bounded_by_the_limit(admin: AdminClient) -> None:
    """However many producers a partition has, an answer holds at most the limit."""
    producers = admin.broker.partitions["orders", 0].log.producers
    for producer_id in range(5):
        producers.put(producer_id, _ENTRY)
    _, body = await admin.get("/producers/orders/0?limit=2")
    assert (body["count"], [p["producer_id"] for p in body["producers"]]) == (5, [0, 1])
    _, body = await admin.get("/producers/orders/0?producer_id=99")
    assert body["producers"] == []


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/decisions?n=0", 400, "n: takes an integer from 1 to 10000, not '0'"),
        ("/decisions?producer_id=x", 400, "producer_id: takes an integer, at least 0, not 'x'"),
        (
            "/decisions?partition=-1",
            400,
            "partition: takes an integer, at least 0, not '-1'",
        ),
        ("/decisions?follow=yes", 400, "follow: takes true or false, not 'yes'"),
        ("/producers/orders/0?limit=", 400, "limit: takes an integer from 1 to 10000, not ''"),
        ("/producers/orders/9", 404, "there is no partition orders-9 on this broker"),
        ("/producers/orders/x", 404, "there is no partition orders-x on this broker"),
        ("/nothing", 404, "404: Not Found"),
    ],
)
async def test_errors_are_json(admin: AdminClient, path: str, status: int, error: str) -> None:
    """Every refusal has the right status and a JSON body that says what is wrong."""
    assert await admin.get(path) == (status, {"error": error})


async def test_nothing_can_be_changed(admin: AdminClient) -> None:
    """The paths are for reading: any other method is refused."""
    assert (await admin.get("/topics", "POST"))[0] == 405


async def test_metrics_are_what_prometheus_reads(admin: AdminClient) -> None:
    """The text parses, and holds the counters with their labels."""
    admin.broker.metrics.requests["produce"] = 3
    admin.broker.metrics.rejects["OUT_OF_ORDER_SEQUENCE_NUMBER"] = 2
    admin.broker.metrics.faults["drop_response"] = 1
    admin.broker.metrics.latencies[0][3] += 2
    admin.broker.metrics.latencies[0][-1] += 0.0015
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(await admin.text("/metrics"))
        for sample in family.samples
    }
    assert samples["echoless_requests_total", (("api", "produce"),)] == 3
    assert samples["echoless_rejects_total", (("error", "OUT_OF_ORDER_SEQUENCE_NUMBER"),)] == 2
    assert samples["echoless_faults_total", (("action", "drop_response"),)] == 1
    assert samples["echoless_duplicates_total", ()] == 0
    partition = (("partition", "0"), ("topic", "orders"))
    assert samples["echoless_partition_log_end_offset", partition] == 10
    assert samples["echoless_partition_producers_evicted_total", partition] == 0
    assert samples["echoless_partition_last_stable_offset", partition] == 6
    assert samples["echoless_partition_open_transactions", partition] == 0
    assert samples["process_resident_memory_bytes", ()] > 0
    took = "echoless_request_seconds"
    assert samples[f"{took}_bucket", (("api", "produce"), ("le", "0.0005"))] == 0
    assert samples[f"{took}_bucket", (("api", "produce"), ("le", "0.001"))] == 2
    assert samples[f"{took}_bucket", (("api", "produce"), ("le", "+Inf"))] == 2
    assert samples[f"{took}_count", (("api", "produce"),)] == 2
    assert samples[f"{took}_sum", (("api", "produce"),)] == 0.0015


async def test_the_latency_of_no_api_is_left_out(admin: AdminClient) -> None:
    """A row for a key that is not served does not end the page."""
    admin.broker.metrics.latencies[97][-1] += 0.1
    text = await admin.text("/metrics")
    assert "echoless_connections_open" in text


async def test_partitions_in_trouble_are_counted(admin: AdminClient) -> None:
    """A replica that is not in sync where the broker leads, and no leader at all."""
    first, second, _ = admin.broker.partitions.values()
    first.isr = first.replicas
    second.leader_id, second.is_leader = -1, False
    text = await admin.text("/metrics")
    assert "echoless_under_replicated_partitions 1.0" in text
    assert "echoless_under_min_isr_partitions 0.0" in text
    assert "echoless_active_controller 1.0" in text
    first.rules.min_insync_replicas = 3
    admin.broker.membership.controller_id = 2
    text = await admin.text("/metrics")
    assert "echoless_under_min_isr_partitions 1.0" in text
    assert "echoless_active_controller 0.0" in text
    assert "echoless_offline_partitions 1.0" in text


async def test_the_controller_counts_every_partition_without_a_live_leader(
    admin: AdminClient,
) -> None:
    """It has to: with all replicas down no other broker knows of them."""
    states = {
        0: LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,)),
        1: LeaderAndIsr(leader=NO_LEADER, leader_epoch=1, isr=(2,)),
        2: LeaderAndIsr(leader=3, leader_epoch=0, isr=(3,)),
    }
    assignment = {index: (index + 1,) for index in range(4)}  # 3 was never led
    topic = Topic(name="t", topic_id=TOPIC_ID, assignment=assignment, states=states, config={})
    admin.broker.registry.topics["t"] = topic
    admin.broker.membership.brokers = {
        1: BrokerInfo(broker_id=1, endpoints={}, started_ms=0),
    }
    assert "echoless_offline_partitions 3.0" in await admin.text("/metrics")
    admin.broker.membership.controller_id = 2
    assert "echoless_offline_partitions 0.0" in await admin.text("/metrics")


async def test_what_a_broker_stands_on_is_measured(admin: AdminClient, tmp_path: Path) -> None:
    """Its disk, its certificates and its clock fail slowly enough to be seen before."""
    admin.broker.config = replace(admin.broker.config, data_dir=str(tmp_path))
    admin.broker.tls = SimpleNamespace(expiries_s={"PLAINTEXT": 1_800_000_000.0})
    admin.broker.clock = Clock(lambda: 1_795_000_000_000, lambda: 0, None)
    text = await admin.text("/metrics")
    assert "echoless_log_directory_failed 0.0" in text
    free, size = (
        float(re.findall(rf"^echoless_log_directory_{name} (\S+)", text, re.MULTILINE)[0])
        for name in ("free_bytes", "bytes")
    )
    assert 0 < free <= size
    assert 'echoless_certificate_expiry_seconds{listener="PLAINTEXT"} 1.8e+09' in text
    assert "echoless_wall_clock_seconds 1.795e+09" in text
    admin.broker.logs.failure = OSError("disk full")
    assert "echoless_log_directory_failed 1.0" in await admin.text("/metrics")


async def test_a_volume_that_cannot_be_asked_hides_no_other_metric(
    admin: AdminClient, tmp_path: Path
) -> None:
    """It may have been unmounted."""
    admin.broker.config = replace(admin.broker.config, data_dir=str(tmp_path / "gone"))
    text = await admin.text("/metrics")
    assert "echoless_log_directory_free_bytes" not in text
    assert "echoless_ready" in text


async def test_index_lists_the_paths(admin: AdminClient) -> None:
    """Opening the port in a browser shows what it has."""
    _, body = await admin.get("/")
    assert "/decisions" in body["paths"]


async def test_stop_closes_the_port_whether_it_woke_or_not() -> None:
    """A port that was never used, and one whose first client has just connected, both close."""
    for connects in (False, True):
        listener = bind("admin_listen", Address("127.0.0.1", 0))
        address = bound_address(listener)
        server = AdminServer(listener, FakeBroker())
        server.start()
        if connects:
            _, writer = await asyncio.open_connection(*address)
            writer.close()
        await server.stop()
        with pytest.raises(ConnectionRefusedError), socket.create_connection(address):
            pass


def test_waiting_for_the_first_connection_imports_no_http() -> None:
    """An unused admin port costs neither the time nor the memory of aiohttp."""
    program = (
        "import sys, broker.admin.server; "
        "print([m for m in ('aiohttp', 'prometheus_client') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout.strip() == b"[]"


async def test_while_the_broker_starts_every_page_says_how_far_it_is(admin: AdminClient) -> None:
    """Nothing else of it is there yet."""
    admin.broker.starting = "3 of 6000 logs are open"
    for path in ("/health", "/ready", "/metrics", "/topics"):
        assert await admin.get(path) == (
            503,
            {"status": "starting", "error": "3 of 6000 logs are open"},
        )
    admin.broker.starting = None
    assert await admin.get("/health") == (200, {"status": "ok"})
