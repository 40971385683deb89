"""A shard: events into a coordinator, its effects out, and nothing once the lead is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from echoless.broker.groups.shard import GroupShard
from echoless.broker.limited_log import BURST
from echoless.broker.state_topics import held_requests as held_module
from echoless.broker.state_topics import shard as shard_module
from echoless.broker.state_topics.shard_state import ShardState
from echoless.coordinators.effects import (
    AppendRecords,
    CancelTimer,
    LogLine,
    Reply,
    SetTimer,
    StateRecord,
)
from echoless.coordinators.events import (
    Abandoned,
    AppendCommitted,
    AppendFailed,
    Now,
    Requested,
    TimerFired,
)
from echoless.coordinators.groups.answers import HeartbeatAnswer
from echoless.coordinators.groups.effects import GroupEffect, TimerKey, TimerKind
from echoless.coordinators.groups.events import GroupEvent
from echoless.coordinators.recovery import Recovery
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from tests.broker.state_topics.sharded import ALIVE, HEARTBEAT, Sharded, alive, answer_of
from tests.broker.until import WITHIN_S, until

TIMER = TimerKey(TimerKind.SESSION, "g", "m")
RECORD = StateRecord(b"key", b"value")


async def test_a_request_is_answered_at_once_if_the_coordinator_does() -> None:
    one = Sharded()
    shard = await one.serving()
    assert shard.ask(HEARTBEAT) == ALIVE


async def test_an_answer_may_come_with_a_later_event() -> None:
    """A request waits for its own answer, however many others come before."""
    one = Sharded()
    shard = await one.serving()
    one.coordinator.effects_of = lambda event: (
        [Reply(1, ALIVE)] if isinstance(event, Requested) and event.reply_id == 2 else []
    )
    first = asyncio.ensure_future(answer_of(shard))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(answer_of(shard))
    assert await first == ALIVE
    assert not second.done()
    second.cancel()


async def test_a_request_whose_connection_ends_is_abandoned() -> None:
    one = Sharded()
    shard = await one.serving()
    one.coordinator.effects_of = lambda _: []
    waiting = asyncio.ensure_future(answer_of(shard))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert one.coordinator.events[-1] == Abandoned(1)


async def test_records_are_appended_and_the_coordinator_learns_when_they_are_committed() -> None:
    """H2: the answer comes after that, because the coordinator gives it then."""
    one = Sharded(replicas=(1, 2))
    shard = await one.serving()

    def effects_of(event: GroupEvent) -> list[GroupEffect]:
        match event:
            case Requested():
                return [AppendRecords(5, (RECORD,))]
            case AppendCommitted(5):
                return [Reply(1, ALIVE)]
        return []

    one.coordinator.effects_of = effects_of
    asked = asyncio.ensure_future(answer_of(shard))
    await until(lambda: one.led.one.log.log_end_offset)
    assert not asked.done()
    one.led.partition.note_fetch(2, 7, 1)
    assert await asked == ALIVE


async def test_a_refused_append_comes_back_with_its_code() -> None:
    one = Sharded()
    shard = await one.serving()
    one.coordinator.effects_of = lambda event: (
        [AppendRecords(5, (StateRecord(b"k", bytes(2_000_000)),))]
        if isinstance(event, Requested)
        else []
    )
    asked = asyncio.ensure_future(answer_of(shard))
    failed = AppendFailed(5, ErrorCode.MESSAGE_TOO_LARGE, may_commit=False)
    await until(lambda: one.coordinator.events[-1:] == [failed])
    asked.cancel()


async def test_a_timer_fires_once_unless_it_is_cancelled_or_replaced() -> None:
    """H6: and the coordinator judges late ones by their key."""
    one = Sharded()
    shard = await one.serving()
    at_ms = round(asyncio.get_running_loop().time() * 1000)
    other = TIMER._replace(member_id="other")
    effects: list[GroupEffect] = [
        SetTimer(other, at_ms),
        CancelTimer(other),
        SetTimer(TIMER, at_ms + 3_600_000),
        SetTimer(TIMER, at_ms),
    ]
    one.coordinator.effects_of = lambda event: (
        [*effects, Reply(1, ALIVE)] if isinstance(event, Requested) else []
    )
    shard.ask(HEARTBEAT)
    await until(lambda: one.coordinator.events[-1] == TimerFired(TIMER))
    await asyncio.sleep(0.002)
    assert one.coordinator.events[1:] == [TimerFired(TIMER)]


async def test_notes_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A client can cause several with each request; what is left out is counted."""
    one = Sharded()
    shard = await one.serving()
    caplog.set_level(logging.INFO)
    one.coordinator.effects_of = lambda event: (
        [LogLine("rebalances"), Reply(event.reply_id, ALIVE)]
        if isinstance(event, Requested)
        else []
    )
    for _ in range(2 * BURST):
        assert shard.ask(HEARTBEAT) == ALIVE
    noted = sum(record.getMessage().endswith(": rebalances") for record in caplog.records)
    assert BURST <= noted < 2 * BURST
    shard_module.limited.summarise()
    assert f"{2 * BURST - noted} more lines about {one.led.partition.name}" in caplog.text


# --- loading ---


async def test_a_timer_that_fires_while_the_groups_are_begun_is_not_lost() -> None:
    """A session that ends in the turns of a long start ends once the shard serves: its member would stay for ever."""
    one = Sharded()
    shard = GroupShard(one.led.partition, one.parts)

    def start(_now: Now) -> Iterator[list[GroupEffect]]:
        yield []
        shard._fired(TIMER)  # as the loop does between two items
        yield []
        assert one.coordinator.events == []

    one.coordinator.start = start  # type: ignore[method-assign]
    await until(lambda: shard.state is ShardState.SERVING)
    assert TimerFired(TIMER) in one.coordinator.events


async def test_requests_are_held_until_the_partition_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H7: the new leader's log ends with a record that is not committed yet."""
    monkeypatch.setattr(held_module, "HELD_S", WITHIN_S)  # however slow the machine is
    one = Sharded(replicas=(1, 2))
    one.store(b"a")
    shard = GroupShard(one.led.partition, one.parts)
    asked = asyncio.ensure_future(answer_of(shard))
    await until(lambda: one.led.partition.waiters.commit.heap)
    assert one.coordinator.applied == [b"a"]
    assert not asked.done()
    assert one.coordinator.events == []
    one.led.partition.note_fetch(2, 7, 1)
    assert await asked == ALIVE


# --- the end ---


async def test_with_the_lead_everything_ends() -> None:
    """Requests that wait get 16, and so do later ones; no timer fires, nothing is appended."""
    one = Sharded()
    shard = await one.serving()
    at_ms = round(asyncio.get_running_loop().time() * 1000)
    one.coordinator.effects_of = lambda _: [SetTimer(TIMER, at_ms), AppendRecords(1, (RECORD,))]
    waiting = asyncio.ensure_future(answer_of(shard))
    await asyncio.sleep(0)
    count = len(one.coordinator.events)
    shard.lose()
    assert await waiting == HeartbeatAnswer(ErrorCode.NOT_COORDINATOR)
    assert await answer_of(shard) == HeartbeatAnswer(ErrorCode.NOT_COORDINATOR)
    await asyncio.sleep(0.002)
    assert len(one.coordinator.events) == count


async def test_requests_held_while_the_lead_is_lost_are_refused_at_once() -> None:
    one = Sharded(replicas=(1, 2))
    one.store(b"a")
    shard = GroupShard(one.led.partition, one.parts)
    asked = asyncio.ensure_future(answer_of(shard))
    await asyncio.sleep(0)
    shard.lose()
    assert await asked == HeartbeatAnswer(ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize("later", [False, True])
async def test_nothing_is_answered_while_the_lead_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, *, later: bool
) -> None:
    """H1: a paused broker that wakes up may have a successor, so it answers 16, whatever it knows."""
    monkeypatch.setattr(held_module, "HELD_S", 0)
    one = Sharded()
    shard = await one.serving()
    if later:
        one.coordinator.effects_of = lambda event: (
            [AppendRecords(1, (RECORD,))] if isinstance(event, Requested) else [Reply(1, ALIVE)]
        )
        asked = asyncio.ensure_future(answer_of(shard))
        await asyncio.sleep(0)
    one.led.fencing.is_proved = False
    answer = await (asked if later else answer_of(shard))
    assert answer == HeartbeatAnswer(ErrorCode.NOT_COORDINATOR)
    assert [type(event) for event in one.coordinator.events] == (
        [Requested, AppendFailed] if later else []
    )


async def test_requests_wait_through_a_doubt_and_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most doubts end with the same leader; and again in the next doubt."""
    monkeypatch.setattr(held_module, "HELD_S", WITHIN_S)
    one = Sharded()
    shard = await one.serving()
    for doubt in range(2):
        one.led.fencing.is_proved = False
        asked = [asyncio.ensure_future(answer_of(shard)) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(one.coordinator.events) == 3 * doubt
        one.led.fencing.is_proved = True
        assert await asyncio.gather(*asked) == [ALIVE] * 3
        replies = [event.reply_id for event in one.coordinator.events]  # type: ignore[union-attr]
        assert replies == sorted(replies)


async def test_requests_that_wait_through_a_doubt_are_refused_with_the_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once: the client has to look for another broker. So is one that comes before this broker has noticed."""
    monkeypatch.setattr(held_module, "HELD_S", WITHIN_S)
    one = Sharded()
    shard = await one.serving()
    one.led.fencing.is_proved = False
    asked = asyncio.ensure_future(answer_of(shard))
    await asyncio.sleep(0)
    shard.lose()
    assert await asked == HeartbeatAnswer(ErrorCode.NOT_COORDINATOR)
    assert one.coordinator.events == []


async def test_a_bug_costs_the_connection_of_its_request() -> None:
    """Others about the same group are refused, to be sent again; those about other groups go on, and so does the shard."""
    one = Sharded()
    shard = await one.serving()
    one.coordinator.effects_of = lambda _: []
    same = asyncio.ensure_future(answer_of(shard))
    other = asyncio.ensure_future(answer_of(shard, HEARTBEAT._replace(group_id="other")))
    await asyncio.sleep(0)

    def broken(*_: object) -> list[GroupEffect]:
        raise ZeroDivisionError

    one.coordinator.effects_of = broken
    one.coordinator.recovery = Recovery("g", [Reply(2, ALIVE)])
    with pytest.raises(ZeroDivisionError):
        shard.ask(HEARTBEAT)
    assert await same == shard.refusal_while_loading(HEARTBEAT)
    assert await other == ALIVE
    assert one.reloaded == []
    one.coordinator.effects_of = alive
    assert shard.ask(HEARTBEAT) == ALIVE


async def test_a_bug_in_an_event_of_no_request_costs_no_connection() -> None:
    """It may be about any of those that wait: they are refused, and ask again."""
    one = Sharded()
    shard = await one.serving()
    one.coordinator.effects_of = lambda _: []
    waiting = asyncio.ensure_future(answer_of(shard))
    await asyncio.sleep(0)

    def broken(*_: object) -> list[GroupEffect]:
        raise ZeroDivisionError

    one.coordinator.effects_of = broken
    one.coordinator.recovery = Recovery("g", [])
    shard.committed(5)
    assert await waiting == shard.refusal_while_loading(HEARTBEAT)
    assert one.reloaded == []


@pytest.mark.parametrize("raises", [False, True])
async def test_a_coordinator_that_cannot_recover_is_loaded_again(*, raises: bool) -> None:
    """Its state may be half changed; the log has what was ever answered."""
    one = Sharded()
    shard = await one.serving()

    def broken(*_: object) -> list[GroupEffect]:
        raise ZeroDivisionError

    one.coordinator.effects_of = broken
    if raises:
        one.coordinator.recover = broken  # type: ignore[assignment]
    asked = asyncio.ensure_future(answer_of(shard))
    await asyncio.sleep(0)
    assert one.reloaded == [shard]
    shard.lose()
    assert await asked == HeartbeatAnswer(ErrorCode.NOT_COORDINATOR)


async def test_a_log_that_cannot_be_read_is_not_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests get 15, which clients retry; the log line says what to do."""
    one = Sharded()
    one.store(b"a")
    monkeypatch.setattr(one.led.one.log, "read", lambda *_: b"\0" * 70)
    shard = GroupShard(one.led.partition, one.parts)
    await until(lambda: shard.state is ShardState.FAILED)
    assert await answer_of(shard) == HeartbeatAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert "echoless verify" in caplog.text


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug"), KafkaError(ErrorCode.INVALID_RECORD)]
)
async def test_a_partition_whose_loading_fails_for_any_reason_is_not_served(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """It would be loading for ever; the log line names the partition and the error."""
    one = Sharded()
    one.store(b"a")

    def start(_now: Now) -> Iterator[list[GroupEffect]]:
        yield []
        raise error

    one.coordinator.start = start  # type: ignore[method-assign]
    shard = GroupShard(one.led.partition, one.parts)
    await until(lambda: shard.state is ShardState.FAILED)
    assert await answer_of(shard) == HeartbeatAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert f"the groups of {one.led.partition.name} cannot be served" in caplog.text
    assert type(error).__name__ in caplog.text
    assert one.parts.appends.metrics.group_load_failures_total == 1


async def test_a_record_that_is_not_understood_is_named_with_its_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the log and for /health, with what helps."""
    one = Sharded()
    one.store(b"a")

    def apply(_key: bytes, _value: bytes | None) -> str | None:
        raise DecodeError("type 8 is of version 3")

    one.coordinator.apply = apply  # type: ignore[method-assign]
    shard = GroupShard(one.led.partition, one.parts)
    await until(lambda: shard.state is ShardState.FAILED)
    assert shard.unserved is not None
    assert shard.unserved.state == "failed"
    for text in (shard.unserved.reason, caplog.text):
        assert "orders-0 cannot be served" in text
        assert "the record at offset 0: type 8 is of version 3" in text
        assert "read by the release that wrote it" in text


async def test_a_shard_that_is_long_in_loading_says_so_until_it_serves(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A high watermark that does not move would leave its groups waiting in silence."""
    monkeypatch.setattr(shard_module, "LATE_S", 0.001)
    one = Sharded(replicas=(1, 2))
    one.store(b"a")
    shard = GroupShard(one.led.partition, one.parts)
    assert shard.unserved is None
    await until(lambda: caplog.text.count("have been loading for") >= 2)
    assert shard.unserved is not None
    assert shard.unserved.state == "loading"
    assert "the log ends at 1, its high watermark is 0" in shard.unserved.reason
    one.led.partition.note_fetch(2, 7, 1)
    await until(lambda: shard.state is ShardState.SERVING)
    assert shard.unserved is None
