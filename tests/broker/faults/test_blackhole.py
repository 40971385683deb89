"""A client of which everything is lost, until its sessions with the coordinators have ended."""

from __future__ import annotations

import datetime

import pytest

from echoless.broker.faults.reading_rules import read_rules
from tests.broker.faults.lab import TOPIC, Lab, batch, produce, send
from tests.broker.faults.test_group_faults import member
from tests.broker.faults.test_request_faults import expecting_silence, until
from tests.broker.faults.test_transaction_faults import send as send_in_transaction
from tests.broker.handlers.one_transaction import end, find, init, state
from tests.support.raw_client import ConnectionEndedError, RawConnection

RAW = {"client_id": "raw"}
"""The client of a `RawConnection`."""
MEMBER = {"client_id": "echoless"}


def is_over(lab: Lab, name: str) -> bool:
    (rule,) = [one for one in lab.broker.faults.documents() if one["name"] == name]
    return rule["exhausted"]


async def test_everything_of_a_client_without_sessions_is_lost_until_the_rule_is_removed(
    lab: Lab, kafka: RawConnection
) -> None:
    """Its connections end with the rule, so that it begins anew."""
    name = lab.add("blackhole", RAW, skip=1)
    assert await produce(kafka, batch(0)) == [0]
    send(kafka, batch(1))
    async with expecting_silence(kafka):
        await until(lambda: lab.counts(name) == (2, 1))
    lab.broker.faults.remove(name)
    with pytest.raises(ConnectionEndedError):
        await kafka.receive()
    assert lab.verdicts() == [(0, "append")]
    other = await lab.connect()
    assert await produce(other, batch(1)) == [0]


@pytest.mark.slow
async def test_a_member_of_a_group_is_kept_away_until_its_session_ends(lab: Lab) -> None:
    """The group takes it for dead after its session timeout; then it may join again. Other clients go on."""
    async with member(lab) as (one, _):
        generation = await one.join([TOPIC])
        name = lab.add("blackhole", MEMBER)
        other = await lab.connect()
        await until(lambda: lab.counts(name)[1] > 0)
        assert not is_over(lab, name)
        assert await produce(other, batch(0)) == [0]
        await until(lambda: is_over(lab, name))
        again = await one.join([TOPIC])
        assert again.number > generation.number


@pytest.mark.slow
async def test_a_producer_is_kept_away_until_its_transaction_has_timed_out(
    lab: Lab, kafka: RawConnection
) -> None:
    """The coordinator aborts it; the producer comes back and is fenced."""
    assert (await find(kafka)).error_code.value == 0
    answer = await init(kafka, within=datetime.timedelta(milliseconds=300))
    identity = answer.producer_id, answer.producer_epoch
    assert (await send_in_transaction(kafka, identity, 0)).value == 0
    name = lab.add("blackhole", RAW)
    asked = await lab.connect()
    asked.answer_timeout_s = 60
    with pytest.raises(ConnectionEndedError):
        await end(asked, identity)
    assert is_over(lab, name)
    other = await lab.connect()
    await until(lambda: lab.counts(name)[1] == 1)
    assert await state(other) in {"PrepareAbort", "CompleteAbort"}
    assert (await end(other, identity)).error_code.value != 0


async def test_a_blackhole_may_outlast_sessions(lab: Lab, kafka: RawConnection) -> None:
    """`until=removed`; or its own time."""
    name = lab.add({"type": "blackhole", "until": "removed"}, RAW, duration_ms=80)
    send(kafka, batch(0))
    with pytest.raises(ConnectionEndedError):
        await kafka.receive()
    assert is_over(lab, name)


async def test_a_script_may_end_in_a_blackhole(lab: Lab, kafka: RawConnection) -> None:
    """First an error, then nothing more."""
    script = {
        "name": "s",
        "match": RAW,
        "script": [
            {"action": {"type": "error", "code": 6}, "match": {"api": "produce"}},
            "blackhole",
        ],
    }
    lab.broker.faults.add(read_rules(script))
    assert await produce(kafka, batch(0)) == [6]
    send(kafka, batch(0))
    async with expecting_silence(kafka):
        await until(lambda: lab.broker.faults.documents()[0]["hits"] == 2)
    lab.broker.faults.clear()
