"""Messages about many transactions, divided: what a rule picks meets its fate, and the rest is processed at once.

A coordinator sends what it has for one broker in one message, so that a rule about one partition, or one transactional id,
would hold back others by chance. Nor does a message that is held back hold up later ones of its connection: the broker that
sends them relies on no order. Only the answer is one, and answers keep their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from echoless.broker.faults.match import Part
from echoless.broker.faults.requests import finished
from echoless.broker.faults.transactions_named import parts_between_brokers
from echoless.broker.faults.unexpected import report_unexpected
from echoless.broker.native.framed import framed
from echoless.broker.network.answers import Buffers
from echoless.broker.network.reading import Dispatched
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.framing import LENGTH_SIZE
from echoless.protocol.native.codec import decode_message, encode_message
from echoless.protocol.native.transactions import (
    AddOrVerify,
    TransactionAnswered,
    TransactionAsk,
    TransactionMarker,
    WriteMarkers,
    read_add_or_verify_answer,
    read_write_markers_answer,
    to_add_or_verify_answer,
    to_write_markers_answer,
)

ManyTransactions = WriteMarkers | AddOrVerify
ProcessFrame = Callable[[bytes], Dispatched]

_Unit = TransactionMarker | TransactionAsk
"""A marker of one partition, or a question about one transaction: what is not divided any further."""
_Answer = ErrorCode | TransactionAnswered
_Numbered = Sequence[tuple[int, Any]]
"""Units with their numbers in the message."""


class DividedMessage:
    """One message, of which a rule has picked some parts. The rest is processed from the beginning."""

    def __init__(
        self,
        head: Mapping[str, Any],
        message: ManyTransactions,
        parts: Collection[Part],
        process: ProcessFrame,
    ) -> None:
        """`process` answers a frame."""
        self._head = head
        self._message = message
        self._process_frame = process
        picked, rest = _divided(message, frozenset(parts))
        self._picked = picked
        self._rest = asyncio.ensure_future(self._answers(rest))
        self._rest.add_done_callback(report_unexpected)

    def process(self) -> Dispatched:
        """Processes what is picked; the answer is that of the whole message."""
        return self._joined(self._answers(self._picked))

    async def refuse(self, error: KafkaError, *, is_processed: bool) -> Buffers | None:
        """Answers with the error for what is picked, which is processed before, or not at all."""
        if is_processed:
            await self._answers(self._picked)
        return await self._joined(self._refused(error))

    async def _joined(self, picked: Awaitable[dict[int, _Answer]]) -> Buffers | None:
        found = {**await picked, **await asyncio.shield(self._rest)}
        rows: Any = [found[number] for number in range(len(found))]
        if isinstance(self._message, AddOrVerify):
            return framed(self._head, to_add_or_verify_answer(rows))
        codes = iter(rows)
        by_marker = [[next(codes) for _ in one.partitions] for one in self._message.markers]
        return framed(self._head, to_write_markers_answer(by_marker))

    async def _refused(self, error: KafkaError) -> dict[int, _Answer]:
        return {number: self._refusal(error) for number, _ in self._picked}

    def _refusal(self, error: KafkaError) -> _Answer:
        is_markers = isinstance(self._message, WriteMarkers)
        return error.code if is_markers else TransactionAnswered(error.code)

    async def _answers(self, units: _Numbered) -> dict[int, _Answer]:
        """The answer to each, by its number."""
        if not units:
            return {}
        numbers, rows = zip(*units, strict=True)
        message = type(self._message)(self._message.broker_id, rows).to_message()
        buffers = await finished(
            self._process_frame(encode_message({**message, "correlation_id": 0}))
        )
        assert buffers is not None, "these messages are answered"
        answer = decode_message(b"".join(buffers)[LENGTH_SIZE:])
        try:
            return dict(zip(numbers, self._read(answer, rows), strict=True))
        except KafkaError as error:
            return {number: self._refusal(error) for number in numbers}

    def _read(self, answer: Mapping[str, Any], rows: Sequence[Any]) -> list[_Answer]:
        if isinstance(self._message, AddOrVerify):
            return [*read_add_or_verify_answer(answer, rows)]
        return [code for (code,) in read_write_markers_answer(answer, rows)]


def _divided(message: ManyTransactions, picked: frozenset[Part]) -> tuple[_Numbered, _Numbered]:
    """The units that a rule has picked, and the others."""
    places = parts_between_brokers(message)
    units: list[tuple[_Unit, bool]] = []
    if isinstance(message, WriteMarkers):
        for marker in message.markers:
            units += [
                (marker._replace(partitions=(one,)), next(places) in picked)
                for one in marker.partitions
            ]
    else:
        for ask in message.transactions:
            hits = [next(places) in picked for _ in ask.partitions]
            units.append((ask, any(hits)))
    numbered = list(enumerate(units))
    return (
        [(number, unit) for number, (unit, is_picked) in numbered if is_picked],
        [(number, unit) for number, (unit, is_picked) in numbered if not is_picked],
    )
