"""The steps of transactions that `/decisions` shows, of clients of both generations, and what a coordinator does by itself."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from echoless.broker.decisions.stream import Selection
from echoless.protocol.errors import ErrorCode
from tests.broker.admin.raw_http import ask
from tests.broker.faults.lab import TOPIC, Lab
from tests.broker.faults.test_transaction_faults import send
from tests.broker.handlers.one_transaction import ID, add, begin, end, init, until_state
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection

PLACE = (TOPIC, 0)


@pytest.fixture
async def lab(running: Running) -> Lab:
    """A broker with a topic of two partitions."""
    lab = Lab(running)
    await lab.create_topic(partitions=2)
    return lab


def steps(lab: Lab, **selection: Any) -> list[tuple[str, str, int, tuple[tuple[str, int], ...]]]:
    """Name, result, epoch and partitions of each step, the oldest first; requests that came too early are none."""
    found = lab.broker.decisions.latest_transactions(1000, Selection(**selection))[::-1]
    return [(one.step.value, one.result, one.producer_epoch, one.partitions) for one in found]


async def test_the_first_generation(lab: Lab, kafka: RawConnection) -> None:
    """Each request is a step, in the order of its answer."""
    identity = await begin(kafka)
    await add(kafka, identity, {TOPIC: (0,)})
    await add(kafka, identity, {TOPIC: (1,)})
    await send(kafka, identity, 0, version=11)
    await end(kafka, identity)
    await until_state(kafka, "CompleteCommit")
    both = ((TOPIC, 0), (TOPIC, 1))
    assert steps(lab) == [
        ("session", "", 0, ()),
        ("begin", "", 0, (PLACE,)),
        ("add", "", 0, ((TOPIC, 1),)),
        ("commit", "commit", 0, ()),
        ("marker", "commit", 0, both),
        ("complete", "commit", 0, both),
    ]
    (begun,) = [one for one in lab.broker.decisions.latest_transactions(9) if one.step == "begin"]
    assert (begun.api, begun.transactional_id) == ("add_partitions_to_txn", ID)
    assert begun.connection_id > 0


async def test_the_second_generation(lab: Lab, kafka: RawConnection) -> None:
    """The leader adds, no client has asked for it; the end raises the epoch."""
    identity = await begin(kafka)
    await send(kafka, identity, 0)
    await end(kafka, identity, version=5, is_commit=False)
    await until_state(kafka, "CompleteAbort")
    assert steps(lab) == [
        ("session", "", 0, ()),
        ("begin", "", 0, (PLACE,)),
        ("abort", "abort", 0, ()),
        ("marker", "abort", 1, (PLACE,)),
        ("complete", "abort", 1, (PLACE,)),
    ]
    marker, aborted, begun = lab.broker.decisions.latest_transactions(4)[1:]
    assert (begun.api, begun.connection_id) == ("add_or_verify", 0)
    assert aborted.reason == "goes on in epoch 1"
    assert (marker.base_offset, marker.api) == (1, "write_markers")


async def test_a_timeout_and_a_fence(lab: Lab, kafka: RawConnection) -> None:
    """The coordinator says why it aborts, and the client that comes too late is refused."""
    await begin(kafka)
    answer = await init(kafka, within=datetime.timedelta(milliseconds=50))
    identity = answer.producer_id, answer.producer_epoch
    await send(kafka, identity, 0)
    await until_state(kafka, "CompleteAbort")
    refused = await end(kafka, identity)
    assert refused.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    last = lab.broker.decisions.latest_transactions(1)[0]
    assert (last.step, last.error_code) == ("refuse", ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    (timed_out,) = [
        one for one in lab.broker.decisions.latest_transactions(9) if one.step == "time_out"
    ]
    assert timed_out.partitions == (PLACE,)
    assert timed_out.reason == "open for longer than its timeout"
    answer = await init(kafka)
    second = answer.producer_id, answer.producer_epoch
    await send(kafka, second, 1)
    await init(kafka)
    assert [one[0] for one in steps(lab, topic=TOPIC, partition=1)].count("fence") == 1


async def test_steps_are_selected(lab: Lab, kafka: RawConnection) -> None:
    """By producer, and by topic; a step without partitions is in every topic."""
    for name in (ID, "other"):
        await send(kafka, await begin(kafka, name), 0, name=name)
    mine, other = [
        one for one in lab.broker.decisions.latest_transactions(9) if one.step == "begin"
    ]
    assert mine.producer_id != other.producer_id
    assert [one[0] for one in steps(lab, producer_id=mine.producer_id)] == ["session", "begin"]
    assert [one[0] for one in steps(lab, topic="another")] == ["session", "session"]


async def test_the_admin_port_shows_steps(
    lab: Lab, kafka: RawConnection, admin_address: str
) -> None:
    """With the name of the error, and partitions as objects."""
    identity = await begin(kafka)
    await send(kafka, identity, 0)
    await end(kafka, (identity[0], identity[1] + 1))
    document = (
        await ask(admin_address, "GET /decisions HTTP/1.1", f"Host: {admin_address}")
    ).document["transactions"]
    assert [one["step"] for one in document] == ["refuse", "begin", "session"]
    assert (document[0]["error"], document[0]["api"]) == ("PRODUCER_FENCED", "end_txn")
    assert document[1]["partitions"] == [{"topic": TOPIC, "partition": 0}]
