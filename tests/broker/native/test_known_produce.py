"""A produce message that is known again is answered, and stored, as one that is read field by field."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.native import exchange
from echoless.protocol.framing import Frame
from echoless.protocol.known.memory import SeenBytes
from echoless.protocol.known.native_produce import read_known_produce
from echoless.protocol.native.messages import Produce
from echoless.protocol.record_batch import TRANSACTIONAL_BIT
from tests.support.in_process import in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch

MESSAGES = 80
DAMAGES: list[dict[str, int]] = [
    {"crc": 1},
    {"magic": 1},
    {"base_offset": 4},
    {"record_count": 2},
    {"attributes": TRANSACTIONAL_BIT},
    {"producer_epoch": -1},
    {"base_sequence": 1000},
]


def batches(draw: random.Random) -> list[bytes]:
    """Batches of one producer, small and large: the next one, or a repeat, or a damaged one."""
    made: list[bytes] = []
    sequence = 0
    for _ in range(MESSAGES):
        kind = draw.choice(("next", "next", "next", "repeat", "damaged", "cut"))
        if made and kind == "repeat":
            made.append(draw.choice(made))
            continue
        value = draw.randbytes(draw.choice((0, 10, 1000, 5000, 20_000)))
        batch = plain_batch([value], producer_id=7, producer_epoch=0, base_sequence=sequence)
        if kind == "damaged":
            for name, changed in draw.choice(DAMAGES).items():
                setattr(batch, name, changed)
        data = batch.encode()
        made.append(draw.choice((data[:50], data + b"x", b"")) if kind == "cut" else data)
        sequence += kind in {"next", "repeat"}
    return made


async def answers(native: NativeConnection, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Five messages in flight, with what they are answered."""
    found = []
    for number, one in enumerate(messages):
        native.send(**one)
        if number >= 5:
            found.append(await native.receive())
    return [*found, *[await native.receive() for _ in range(len(messages) - len(found))]]


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize("seed", range(3))
async def test_the_answers_and_the_log_are_the_same(
    tmp_path: Path, seed: int, has_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One topic is sent its batches in messages that end with them, the other in such that do not."""
    draw = random.Random(seed)
    sent = batches(draw)
    ids = [
        {"correlation_id": draw.choice((number, 2**31 + number))} if has_ids else {}
        for number in range(MESSAGES)
    ]
    known: list[bool] = []

    def spy(seen: SeenBytes, frame: Frame) -> tuple[int | None, Produce] | None:
        found = read_known_produce(seen, frame)
        known.append(found is not None)
        return found

    monkeypatch.setattr(exchange, "read_known_produce", spy)
    async with in_process(tmp_path, log_retention_ms=-1) as running:
        native = await NativeConnection.open(running.native_address)
        found = []
        for topic in ("known", "unknown"):
            await native.call("create_topic", topic=topic)
            place = {"type": "produce", "topic": topic, "partition": 0, "acks": -1}
            messages = [{**place, **id_, "batch": one} for id_, one in zip(ids, sent, strict=True)]
            if topic == "unknown":
                messages = [{"batch": one["batch"], **one} for one in messages]
            known.clear()
            found.append(await answers(native, messages))
            assert any(known) == (topic == "known")
        await native.close()
    first, second = found
    assert [str(one).replace("known-0", "unknown-0") for one in first] == list(map(str, second))
    logs = [tmp_path / "data" / f"{topic}-0" / f"{0:020}.log" for topic in ("known", "unknown")]
    assert logs[0].read_bytes() == logs[1].read_bytes()
    assert {one["error"]["code"] for one in first} >= {0, 2, 87}
    assert [one["correlation_id"] for one in first] == [id_.get("correlation_id") for id_ in ids]
