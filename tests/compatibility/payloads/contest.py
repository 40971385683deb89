"""The same payloads to Apache Kafka and to Echoless; what Echoless stores is read by consumers of three families.

Two promises: what Kafka refuses is refused, and every consumer reads everything that is stored, as it was decoded here.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from echoless.protocol.errors import DecodeError
from echoless.protocol.records import read_records
from tests.compatibility.clients.python.records import canonical
from tests.compatibility.payloads.payload import Payload, random_payload
from tests.compatibility.programs import FRANZ_GO, JAVA, LIBRDKAFKA, Program, ProgramError
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

CONSUMERS: Final = (LIBRDKAFKA, JAVA[0], FRANZ_GO)
STORED: Final = "payloads stored, and read by all"
REFUSED: Final = "refused by both"
TAKEN_BY_KAFKA: Final = "refused, and taken by Kafka"
"""For reasons that `docs/differences.md` names: several frames, bytes behind one."""
_ROUNDS_MAX: Final = 10
"""A payload that a consumer does not read hides those behind it: they are read again without it."""


@dataclass(slots=True)
class Findings:
    """Counts, and every breach of a promise in words."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class _Stored:
    payload: Payload
    batch: bytes
    base_offset: int


async def contest(
    ours: str, kafka: str, seed: int, numbers: Iterable[int], directory: Path
) -> Findings:
    """Sends these payloads of the seed to the brokers at both addresses, and has what is stored read."""
    findings = Findings()
    payloads = [random_payload(seed, number) for number in numbers]
    name = f"payloads-{seed}-{payloads[0].number}"
    now = int(time.time() * 1000)
    batches = [payload.batch(now) for payload in payloads]
    theirs = await _sent(kafka, name, batches)
    answers = await _sent(ours, name, batches)
    stored = []
    for payload, batch, (code, offset), (their_code, _) in zip(
        payloads, batches, answers, theirs, strict=True
    ):
        findings.counts[_kind(code, their_code)] += 1
        if their_code and not code:
            findings.problems.append(
                f"payload {payload.number} of seed {seed} is stored, Kafka answers {their_code}: {payload.about}"
            )
        if not code:
            stored.append(_Stored(payload, batch, offset))
    findings.problems += await _unread(ours, name, stored, directory)
    return findings


def _kind(code: int, their_code: int) -> str:
    if not code:
        return STORED
    return REFUSED if their_code else TAKEN_BY_KAFKA


async def _sent(address: str, topic: str, batches: Sequence[bytes]) -> list[tuple[int, int]]:
    """The error and the base offset of each batch."""
    connection = await RawConnection.open(address)
    try:
        await create_topic(connection, topic, 1)
        found = []
        for batch in batches:
            (answer,) = await connection.produce(9, -1, [PartitionData(topic, 0, batch)])
            found.append((answer.error, answer.base_offset))
        return found
    finally:
        await connection.close()


async def _unread(address: str, topic: str, stored: list[_Stored], directory: Path) -> list[str]:
    """Each payload that a consumer does not read, by name."""
    problems: list[str] = []
    for number in range(_ROUNDS_MAX):
        unread = set()
        for program in CONSUMERS:
            found = await asyncio.to_thread(_read, program, address, topic, directory)
            wrong = _first_wrong(stored, found.records)
            if wrong is not None:
                unread.add(wrong.payload.number)
                problems.append(
                    f"{topic}: {program.name} does not read payload {wrong.payload.number}: "
                    f"{wrong.payload.about}; {found.said}"
                )
        if not unread:
            break
        stored = [one for one in stored if one.payload.number not in unread]
        topic = f"{topic}-{number}"
        answers = await _sent(address, topic, [one.batch for one in stored])
        stored = [
            _Stored(one.payload, one.batch, offset)
            for one, (_, offset) in zip(stored, answers, strict=True)
        ]
    return problems


@dataclass(slots=True, frozen=True)
class _Read:
    records: Mapping[int, str]
    said: str


def _read(program: Program, address: str, topic: str, directory: Path) -> _Read:
    """The canonical records by offset, as far as the program came."""
    lines, said = directory / f"{program.name}-{topic}", ""
    try:
        program.run(
            "consume",
            bootstrap=address,
            topic=topic,
            partitions=1,
            records=lines,
        )
    except ProgramError as error:
        said = str(error)[-300:]
    rows = [line.split(" ") for line in lines.read_text().splitlines()]
    return _Read({int(row[1]): row[3] for row in rows if len(row) == 4}, said)


def _first_wrong(stored: Sequence[_Stored], found: Mapping[int, str]) -> _Stored | None:
    for one in stored:
        for offset, wanted in _expected(one):
            if found.get(offset) != wanted:
                return one
    return None


def _expected(one: _Stored) -> list[tuple[int, str]]:
    try:
        records = read_records(one.batch)
    except DecodeError as error:
        raise AssertionError(f"stored, and not decoded here: {one.payload.about}") from error
    return [
        (
            one.base_offset + index,
            canonical(record.timestamp, record.key, record.value, list(record.headers)).hex(),
        )
        for index, record in enumerate(records)
    ]
