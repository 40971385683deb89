"""What the admin port answers, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.admin.server import AdminServer
from broker.admin.view import BrokerView
from broker.config_values import Address
from broker.request import Peer, Request
from broker.server import bind, bound_address
from protocol.dedup import BatchMetadata, ProducerEntry, Reject
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader
from protocol.record_batch import BatchHeader
from tests.broker.admin.fake_broker import TOPIC_ID, FakeBroker

_ENTRY = ProducerEntry(2, 0, 1234, (BatchMetadata(1, 11, 1, 99, 0xABC),))


class _Admin:
    """A client of one admin port."""

    def __init__(self, broker: FakeBroker, url: str, session: aiohttp.ClientSession) -> None:
        self.broker = broker
        self._url = url
        self._session = session

    async def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        async with self._session.request(method, self._url + path) as response:
            return response.status, json.loads(await response.text())

    async def text(self, path: str) -> str:
        async with self._session.get(self._url + path) as response:
            return await response.text()


@pytest.fixture
async def admin() -> AsyncIterator[_Admin]:
    listener = bind("admin_listen", Address("127.0.0.1", 0))
    address = bound_address(listener)
    broker = FakeBroker()
    view: BrokerView = broker
    server = AdminServer(listener, view)
    server.start()
    async with aiohttp.ClientSession() as session:
        yield _Admin(broker, f"http://{address}", session)
    await server.stop()


async def test_health_and_readiness(admin: _Admin) -> None:
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


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_failed_storage_is_neither_healthy_nor_ready(admin: _Admin, path: str) -> None:
    """A broker whose disk has failed wants a restart, and no clients."""
    admin.broker.logs.failure = OSError("disk full")
    expected = {"status": "storage failed", "error": "disk full"}
    assert await admin.get(path) == (503, expected)


async def test_topics_show_the_partitions_in_order(admin: _Admin) -> None:
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
        "log_end_offset": 10,
        "size_bytes": 500,
        "producers": 0,
    }


async def test_producers_show_the_whole_window(admin: _Admin) -> None:
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


async def test_producers_are_bounded_by_the_limit(admin: _Admin) -> None:
    """However many producers a partition has, an answer holds at most the limit."""
    producers = admin.broker.partitions["orders", 0].log.producers
    for producer_id in range(5):
        producers.put(producer_id, _ENTRY)
    _, body = await admin.get("/producers/orders/0?limit=2")
    assert (body["count"], [p["producer_id"] for p in body["producers"]]) == (5, [0, 1])
    _, body = await admin.get("/producers/orders/0?producer_id=99")
    assert body["producers"] == []


async def test_decisions_say_who_what_and_why(admin: _Admin) -> None:
    """A refusal can be looked up by its producer, with reason, window and client."""
    partition: Any = admin.broker.partitions["orders", 0]
    partition.log.producers.put(7, _ENTRY)
    header = BatchHeader(0, 100, 0, 2, 5, 0, 1, 0, 0, 7, 2, 9, 2)
    request = Request(RequestHeader(0, 9, 1, "billing", 0), None, Peer(1, "10.0.0.1:5000"))
    reject = Reject(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence 9 does not follow 1")
    admin.broker.decisions.record(request, partition, header, reject, 1000)
    status, body = await admin.get("/decisions?n=5&producer_id=7&topic=orders")
    assert status == 200
    assert body["decisions"] == [
        {
            "number": 1,
            "time_ms": 1000,
            "topic": "orders",
            "partition": 0,
            "client_id": "billing",
            "address": "10.0.0.1:5000",
            "connection_id": 1,
            "correlation_id": 1,
            "producer_id": 7,
            "producer_epoch": 2,
            "base_sequence": 9,
            "last_sequence": 10,
            "decision": "reject",
            "base_offset": -1,
            "error": "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "reason": "sequence 9 does not follow 1",
            "window": [[0, 1]],
        }
    ]
    assert (await admin.get("/decisions?producer_id=8"))[1] == {"decisions": [], "faults": []}


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/decisions?n=0", 400, "n: takes an integer from 1 to 10000, not '0'"),
        ("/decisions?producer_id=x", 400, "producer_id: takes an integer, at least 0, not 'x'"),
        ("/producers/orders/0?limit=", 400, "limit: takes an integer from 1 to 10000, not ''"),
        ("/producers/orders/9", 404, "there is no partition orders-9 on this broker"),
        ("/producers/orders/x", 404, "there is no partition orders-x on this broker"),
        ("/nothing", 404, "404: Not Found"),
    ],
)
async def test_errors_are_json(admin: _Admin, path: str, status: int, error: str) -> None:
    """Every refusal has the right status and a JSON body that says what is wrong."""
    assert await admin.get(path) == (status, {"error": error})


async def test_nothing_can_be_changed(admin: _Admin) -> None:
    """The paths are for reading: any other method is refused."""
    assert (await admin.get("/topics", "POST"))[0] == 405


async def test_metrics_are_what_prometheus_reads(admin: _Admin) -> None:
    """The text parses, and holds the counters with their labels."""
    admin.broker.metrics.requests["produce"] = 3
    admin.broker.metrics.rejects["OUT_OF_ORDER_SEQUENCE_NUMBER"] = 2
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(await admin.text("/metrics"))
        for sample in family.samples
    }
    assert samples["echoless_requests_total", (("api", "produce"),)] == 3
    assert samples["echoless_rejects_total", (("error", "OUT_OF_ORDER_SEQUENCE_NUMBER"),)] == 2
    assert samples["echoless_duplicates_total", ()] == 0
    partition = (("partition", "0"), ("topic", "orders"))
    assert samples["echoless_partition_log_end_offset", partition] == 10
    assert samples["echoless_partition_producers_evicted_total", partition] == 0
    assert samples["process_resident_memory_bytes", ()] > 0


async def test_index_lists_the_paths(admin: _Admin) -> None:
    """Whoever opens the port in a browser sees what there is."""
    _, body = await admin.get("/")
    assert "/decisions" in body["paths"]


async def test_stop_closes_the_port_whether_it_woke_or_not() -> None:
    """A port that nobody used, and one whose first client has just come, both close."""
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
    """An admin port that nobody uses costs neither the time nor the memory of aiohttp."""
    program = (
        "import sys, broker.admin.server; "
        "print([m for m in ('aiohttp', 'prometheus_client') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout.strip() == b"[]"
