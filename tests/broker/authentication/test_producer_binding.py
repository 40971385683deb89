"""Producer ids that are of use only to the principal that obtained them, on both ports and after restarts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

from echoless.broker.authentication.producer_binding import ProducerBinding
from echoless.broker.config.names import ProducerIdBinding
from echoless.broker.metadata.topic import NewTopic
from echoless.protocol.bound_ids import NUMBER_END, UNBOUND, tag_of
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.leases import LEASED_ID_MIN, is_leased
from tests.broker.authentication.log_in import log_in, with_users
from tests.fakes.memory_node_tree import MemoryTree
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection
from tests.support.raw_produce import PartitionData

REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TIMEOUT = timedelta(seconds=10)
BOUND = {"producer_id_binding": "principal"}
ONLY_KAFKA = "PLAINTEXT:SASL_PLAINTEXT"
"""The native port is open, so that its client is User:ANONYMOUS."""


async def client(running: Running, user: str) -> RawConnection:
    connection = await RawConnection.open(running.kafka_address)
    assert (await log_in(connection, user)).error_code == 0
    return connection


async def obtained(kafka: RawConnection) -> int:
    answer = await kafka.call(
        "init_producer_id", 1, transactional_id=None, transaction_timeout=TIMEOUT
    )
    assert answer.error_code == 0
    return int(answer.producer_id)


async def produced(
    kafka: RawConnection, producer_id: int, sequence: int = 0, *, epoch: int = 0
) -> tuple[int, int]:
    """The code and the offset."""
    batch = plain_batch(
        [b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    (answer,) = await kafka.produce(9, -1, [PartitionData("t", 0, batch.encode())])
    return answer.error, answer.base_offset


@pytest.mark.slow
async def test_another_principal_cannot_fence_a_producer(tmp_path: Path) -> None:
    """Neither with its id nor with a higher epoch; the producer goes on, also after a restart."""
    async with with_users(tmp_path, "alice", "bob", **BOUND) as running:
        await running.broker.services.topics.create(NewTopic(name="t"))
        alice, bob = await client(running, "alice"), await client(running, "bob")
        producer_id = await obtained(alice)
        assert await produced(alice, producer_id) == (0, 0)
        assert await produced(bob, producer_id, epoch=1) == (REFUSED, -1)
        assert await produced(bob, producer_id) == (REFUSED, -1), "not even as a repeat"
        assert await produced(alice, producer_id, 1) == (0, 1)
        assert await produced(bob, await obtained(bob)) == (0, 2)
        assert running.broker.metrics.rejects["CLUSTER_AUTHORIZATION_FAILED"] == 2
    async with with_users(tmp_path, **BOUND) as running:
        alice, bob = await client(running, "alice"), await client(running, "bob")
        assert await produced(bob, producer_id, epoch=1) == (REFUSED, -1)
        assert await produced(alice, producer_id, 2) == (0, 3)


async def test_the_same_on_the_native_port(tmp_path: Path) -> None:
    """For ids from either port, and for leased ones."""
    settings = {**BOUND, "listener_security_protocol_map": ONLY_KAFKA}
    async with with_users(tmp_path, "alice", **settings) as running:
        await running.broker.services.topics.create(NewTopic(name="t"))
        alice = await client(running, "alice")
        native = await NativeConnection.open(running.native_address)
        own = (await native.call("init_producer_id"))["producer_id"]
        leased = (await native.call("lease_pid", topic="t", partition=0))["pid"]
        assert is_leased(leased)
        assert tag_of(leased) == tag_of(own) != UNBOUND
        assert await code_of(native, await obtained(alice)) == REFUSED
        assert await produced(alice, own) == (REFUSED, -1)
        assert await produced(alice, leased) == (REFUSED, -1)
        assert await code_of(native, own) == 0
        assert await code_of(native, leased) == 0
        await native.close()


async def code_of(native: NativeConnection, producer_id: int) -> int:
    batch = plain_batch([b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    answer = await native.call("produce", topic="t", partition=0, batch=batch.encode())
    code: int = answer["error"]["code"]
    return code


@pytest.mark.slow
async def test_ids_from_before_are_everyones(tmp_path: Path) -> None:
    """A producer that began before the binding was turned on goes on."""
    async with with_users(tmp_path, "alice") as running:
        await running.broker.services.topics.create(NewTopic(name="t"))
        alice = await client(running, "alice")
        producer_id = await obtained(alice)
        assert tag_of(producer_id) == UNBOUND
        assert await produced(alice, producer_id) == (0, 0)
    async with with_users(tmp_path, **BOUND) as running:
        assert await produced(await client(running, "alice"), producer_id, 1) == (0, 1)


async def test_every_broker_knows_whose_an_id_is() -> None:
    """Whichever issued it: the secret is in the tree, and the first broker's."""
    tree = MemoryTree()
    first = await ProducerBinding.open(tree.connect())
    second = await ProducerBinding.open(tree.connect())
    bound = first.bound(1000, "User:alice")
    assert second.refusal(bound, "User:alice") is None
    refusal = second.refusal(bound, "User:bob")
    assert refusal is not None
    assert "another principal" in refusal.reason


@pytest.mark.parametrize("number", [NUMBER_END, LEASED_ID_MIN - 1])
async def test_a_number_that_is_too_large_is_not_bound(number: int) -> None:
    """It would look like another principal's."""
    binding = ProducerBinding(b"secret")
    assert binding.bound(NUMBER_END - 1, "User:alice") > NUMBER_END
    with pytest.raises(KafkaError, match="too large"):
        binding.bound(number, "User:alice")


@pytest.mark.slow
async def test_librdkafka_reports_it_and_does_not_try_again(tmp_path: Path) -> None:
    """Each record fails with 31, after one request; the broker meanwhile gives ids another owner."""
    async with in_process(tmp_path, producer_id_binding=ProducerIdBinding.PRINCIPAL) as running:
        await running.broker.services.topics.create(NewTopic(name="t"))
        producer = Producer(
            {"bootstrap.servers": running.kafka_address, "enable.idempotence": True}
        )
        outcomes: list[int | None] = []

        def send() -> None:
            producer.produce(
                "t", b"v", on_delivery=lambda error, _: outcomes.append(error and error.code())
            )
            producer.flush(30)

        await asyncio.to_thread(send)
        binding = running.broker.binding
        assert binding is not None
        binding._tag = ProducerBinding(b"of others")._tag
        await asyncio.to_thread(send)
        assert outcomes == [None, int(REFUSED)]
        assert running.broker.metrics.rejects["CLUSTER_AUTHORIZATION_FAILED"] == 1
