# mypy: disable-error-code="no-untyped-call"
# aiokafka has no annotations.
"""`echoless groups`, against a real broker and members of aiokafka."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from confluent_kafka import Consumer
from hypothesis import example, given
from hypothesis import strategies as st

from echoless.protocol.consumer_assignment import assigned_partitions
from tests.cli.command import Command
from tests.support.echoless import Echoless


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoless]:
    running = Echoless(tmp_path_factory.mktemp("broker"))
    running.start()
    yield running
    running.kill()


@pytest.fixture(autouse=True)
def bootstrap(broker: Echoless, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHOLESS_BOOTSTRAP_SERVER", broker.kafka_address)


async def produce(broker: Echoless, topic: str, partition: int, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.kafka_address) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, b"%d" % number, partition=partition)


def filled(broker: Echoless, echoless: Command, topic: str, group: str) -> None:
    """Five records in each of two partitions, of which the group has read all of the first."""

    async def fill() -> None:
        await produce(broker, topic, 0, 5)
        await produce(broker, topic, 1, 5)

    echoless("topics", "create", topic, "--partitions", 2)
    asyncio.run(fill())
    assert echoless("consume", topic, "--group", group).code == 0
    moved = ("--topic", f"{topic}:1", "--to", "2", "--execute")
    assert echoless("groups", "reset-offsets", group, *moved).code == 0


def committed(echoless: Command, group: str) -> list[int]:
    described = echoless("groups", "describe", group, "--json").json
    return [row["committed"] for row in described["partitions"]]


def test_a_group_is_listed_described_and_deleted(broker: Echoless, echoless: Command) -> None:
    """With what it has committed, and how far behind that is."""
    filled(broker, echoless, "orders", "billing")
    (listed,) = [
        one for one in echoless("groups", "list", "--json").json if one["group"] == "billing"
    ]
    expected = {"group": "billing", "state": "Empty", "type": "consumer"}
    assert listed == {**expected, "protocol": "classic", "coordinator": 1}
    described = echoless("groups", "describe", "billing", "--json").json
    assert (described["state"], described["members"]) == ("Empty", [])
    assert [(row["committed"], row["end"], row["lag"]) for row in described["partitions"]] == [
        (5, 5, 0),
        (2, 5, 3),
    ]
    assert "billing: Empty, 0 members" in echoless("groups", "describe", "billing").out
    deleted = echoless("groups", "delete", "billing", "unheard-of")
    assert deleted.err == (
        "deleted billing\n"
        "echoless: unheard-of: GROUP_ID_NOT_FOUND (echoless groups list shows what there is)\n"
    )
    assert echoless("groups", "describe", "billing").code == 1


async def test_members_are_shown_with_their_partitions(broker: Echoless, echoless: Command) -> None:
    """A group with members is neither moved nor deleted."""
    await asyncio.to_thread(filled, broker, echoless, "shared", "team")
    async with AIOKafkaConsumer(
        "shared", bootstrap_servers=broker.kafka_address, group_id="team", client_id="reader"
    ) as consumer:
        await consumer.getmany(timeout_ms=0)
        described = (await asyncio.to_thread(echoless, "groups", "describe", "team", "--json")).json
        (member,) = described["members"]
        assert (described["state"], member["client_id"]) == ("Stable", "reader")
        assert [row["member"] for row in described["partitions"]] == [member["member"]] * 2
        for arguments in (
            ("reset-offsets", "team", "--topic", "shared", "--to", "latest", "--execute"),
            ("delete", "team"),
        ):
            refused = await asyncio.to_thread(echoless, "groups", *arguments)
            assert refused.code == 1
            assert "stop its members first" in refused.err


def test_offsets_are_moved_when_that_is_asked_for(broker: Echoless, echoless: Command) -> None:
    """Shown first; within what the log holds; to an end, an offset, a time, and by a distance."""
    filled(broker, echoless, "moved", "g")
    soon = datetime.datetime.fromtimestamp(time.time() + 60, datetime.UTC).isoformat()
    for arguments, expected in (
        (("--to", "earliest"), [0, 0]),
        (("--to", "latest"), [5, 5]),
        (("--to", "4"), [4, 4]),
        (("--to", "400"), [5, 5]),
        (("--to", "1970-01-01"), [0, 0]),
        (("--to", soon), [5, 5]),
        (("--back", "1h"), [0, 0]),
        (("--by", "-3"), [2, 0]),
        (("--by", "1"), [5, 3]),
    ):
        command = ("groups", "reset-offsets", "g", "--topic", "moved", *arguments)
        planned = echoless(*command, "--json").json
        assert [row["to"] for row in planned["partitions"]] == expected, arguments
        assert committed(echoless, "g") == [5, 2]
    moved = echoless("groups", "reset-offsets", "g", "--topic", "moved:0", "--to", "1", "--execute")
    assert "g is moved" in moved.out
    assert committed(echoless, "g") == [1, 2]
    anew = ("reset-offsets", "new", "--topic", "moved", "--to", "3", "--execute")
    assert echoless("groups", *anew).code == 0
    assert committed(echoless, "new") == [3, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("describe", "never"), "never: GROUP_ID_NOT_FOUND"),
        (("reset-offsets", "g", "--topic", "t"), "pass one of --to, --back and --by"),
        (("reset-offsets", "g", "--topic", "t", "--to", "1", "--by", "1"), "pass one of"),
        (("reset-offsets", "g", "--topic", "t", "--to", "soon"), "takes earliest, latest"),
        (("reset-offsets", "g", "--topic", "t", "--back", "soon"), "--back: takes milliseconds"),
        (("reset-offsets", "g", "--topic", "t:x", "--to", "1"), "--topic: takes TOPIC or TOPIC:"),
        (("reset-offsets", "g", "--topic", "t:7", "--to", "1"), "t has partitions 0 to 0, not 7"),
        (("reset-offsets", "g", "--topic", "t", "--by", "1"), "g has committed nothing for t-0"),
        (("reset-offsets", "g", "--topic", "u", "--to", "1"), "u: UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_mistakes_are_one_line(echoless: Command, arguments: tuple[str, ...], message: str) -> None:
    """On standard error, with exit code 1."""
    echoless("topics", "create", "t", "--if-not-exists")
    ran = echoless("groups", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


_ASSIGNMENTS = st.lists(
    st.tuples(st.text(max_size=5), st.lists(st.integers(0, 2**31 - 1), max_size=3)), max_size=3
)


@given(_ASSIGNMENTS)
def test_assignments_are_read_as_clients_write_them(
    assignment: list[tuple[str, list[int]]],
) -> None:
    """Partition by partition."""
    written = ConsumerProtocolMemberAssignment(0, assignment, b"user data").encode()
    assert list(assigned_partitions(written)) == [(t, p) for t, parts in assignment for p in parts]


@given(st.binary(max_size=40))
@example(b"\0\0\x7f\xff\xff\xff")
@example(b"\0\0\x7f\xff\xff\xff\xff\xfa\0\0\0\0")
@example(b"\0\0\0\0\0\1\0\0\x7f\xff\xff\xff")
def test_other_assignments_name_no_partitions(assignment: bytes) -> None:
    """They belong to the client; whatever they hold, nothing fails."""
    assert len(list(assigned_partitions(assignment))) <= len(assignment)


def test_a_group_of_the_consumer_protocol_is_described(broker: Echoless, echoless: Command) -> None:
    """Its epochs, what members have, and what they are to have."""
    filled(broker, echoless, "modern", "before")
    settings = {
        "bootstrap.servers": broker.kafka_address,
        "group.id": "modern",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    member = Consumer(settings)
    member.subscribe(["modern"])
    read = [member.poll(30) for _ in range(10)]
    assert all(one is not None and one.error() is None for one in read)
    member.commit(asynchronous=False)
    described = echoless("groups", "describe", "modern", "--json").json
    assert (described["state"], described["epoch"], described["target_epoch"]) == ("Stable", 1, 1)
    (shown,) = described["members"]
    assert shown["assigned"] == shown["target"] == ["modern-0", "modern-1"]
    assert [row["lag"] for row in described["partitions"]] == [0, 0]
    assert "epoch 1" in echoless("groups", "describe", "modern").out
    listed = echoless("groups", "list", "--json").json
    assert {row["group"]: row["protocol"] for row in listed}["modern"] == "consumer"
    member.close()
