"""Rules about the broker's own answer, and about the state of the group or transaction that a request names."""

from __future__ import annotations

import pytest

from echoless.protocol.errors import ErrorCode
from tests.broker.faults.lab import TOPIC, Lab, batch, produce, send
from tests.broker.faults.test_group_faults import GROUP, member
from tests.broker.faults.test_native_faults import batch as native_batch
from tests.broker.faults.test_request_faults import expecting_silence, until
from tests.broker.faults.test_transaction_faults import opened
from tests.broker.handlers.one_transaction import ID, begin, end, state
from tests.support.native_client import NativeConnection
from tests.support.raw_client import ConnectionEndedError, RawConnection

PRODUCE = {"api": "produce"}


async def test_a_rule_about_an_error_meets_only_answers_that_carry_it(
    lab: Lab, kafka: RawConnection
) -> None:
    """A gap is answered 45, and that answer is lost; what succeeds, or fails otherwise, is left alone."""
    name = lab.add("drop_response", {**PRODUCE, "error": "OUT_OF_ORDER_SEQUENCE_NUMBER"})
    assert await produce(kafka, batch(0)) == [0]
    assert await produce(kafka, batch(0, partition=9)) == [3]
    assert lab.counts(name) == (0, 0)
    send(kafka, batch(7))
    async with expecting_silence(kafka):
        await until(lambda: lab.counts(name) == (1, 1))


async def test_any_error(lab: Lab, kafka: RawConnection) -> None:
    """Any API and any row; the connection ends behind it."""
    name = lab.add("close_after", {"error": "any"}, nth=2)
    await kafka.call("metadata", 1, topics=())
    assert await produce(kafka, batch(0), batch(5, partition=1)) == [0, 45]
    assert lab.counts(name) == (1, 0)
    send(kafka, batch(7))
    with pytest.raises(ConnectionEndedError):
        await kafka.receive()
    assert lab.counts(name) == (2, 1)


async def test_another_rule_comes_first(lab: Lab, kafka: RawConnection) -> None:
    """Rules about answers are asked when there is one, after all others, whatever their order."""
    about_answer = lab.add("close_after", {**PRODUCE, "error": "any"})
    refused = lab.add({"type": "error", "code": 6}, PRODUCE, times=1)
    assert await produce(kafka, batch(7)) == [6]
    assert (lab.counts(about_answer), lab.counts(refused)) == ((0, 0), (1, 1))


async def test_unanswered_requests_have_no_error(lab: Lab, kafka: RawConnection) -> None:
    """acks=0."""
    name = lab.add("drop_response", {**PRODUCE, "error": "any"})
    send(kafka, batch(0), acks=0)
    assert await produce(kafka, batch(1)) == [0]
    assert lab.counts(name) == (0, 0)


async def test_errors_of_native_answers(lab: Lab, native: NativeConnection) -> None:
    """They have one for the whole message."""
    name = lab.add({"type": "delay_response", "ms": 0}, {**PRODUCE, "error": 45})
    for sequence, code in ((0, 0), (5, 45)):
        answer = await native.call("produce", **native_batch(sequence))
        assert answer["error"]["code"] == code
    assert lab.counts(name) == (1, 1)


async def test_a_transaction_has_to_be_in_the_state(lab: Lab, kafka: RawConnection) -> None:
    """The end of an open transaction is refused; that of an empty session is left alone."""
    name = lab.add(
        {"type": "error", "code": "CONCURRENT_TRANSACTIONS"},
        {"api": "end_txn", "transactional_id": ID, "transaction_state": "Ongoing"},
    )
    identity = await begin(kafka)
    await end(kafka, identity)
    assert lab.counts(name) == (0, 0)
    identity = await opened(kafka, 0)
    assert (await end(kafka, identity)).error_code.value == ErrorCode.CONCURRENT_TRANSACTIONS
    assert lab.counts(name) == (1, 1)
    assert await state(kafka) == "Ongoing"


@pytest.mark.slow
async def test_a_group_has_to_be_in_the_state(lab: Lab) -> None:
    """Its member leaves it while it is stable, and has joined it when it was not."""
    slow = {"type": "delay_response", "ms": 0}
    joined = lab.add(slow, {"api": "join_group", "group_state": "stable"})
    left = lab.add(slow, {"api": "leave_group", "group": GROUP, "group_state": "Stable"})
    empty = lab.add(slow, {"api": "leave_group", "group_state": "Empty"})
    async with member(lab) as (one, _):
        await one.join([TOPIC])
    assert [lab.counts(name) for name in (joined, left, empty)] == [(0, 0), (1, 1), (0, 0)]


async def test_states_are_unknown_to_those_who_do_not_coordinate(
    lab: Lab, kafka: RawConnection
) -> None:
    """Without a coordinator no state is the one that a rule wants."""
    name = lab.add("close_before", {"group_state": "Dead"})
    await kafka.call("describe_groups", 0, groups=("unknown",))
    assert lab.counts(name) == (0, 0)
