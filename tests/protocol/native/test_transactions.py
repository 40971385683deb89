"""The messages about transactions between brokers: both directions, and what is rejected."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.native.codec import decode_message, encode_message, locate_fields
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.transactions import (
    PARTITIONS_MAX,
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
from echoless.protocol.state_records.transaction_records import TransactionPartition

SUCCESS = {"error": {"code": 0, "name": "NONE", "message": "", "retriable": False}}
INT16, INT32, INT64 = (st.integers(0, 2**bits - 1) for bits in (15, 31, 63))
PARTITIONS = st.lists(
    st.builds(TransactionPartition, st.text(), INT32, st.binary(min_size=16, max_size=16)),
    max_size=4,
).map(tuple)
ASKS = st.builds(TransactionAsk, st.text(), INT64, INT16, st.booleans(), INT16, PARTITIONS)
MARKERS = st.builds(
    TransactionMarker, INT64, INT16, INT64, st.booleans(), INT32, INT32, INT16, PARTITIONS
)
CODES = st.sampled_from(list(ErrorCode))
PARTITION = TransactionPartition("t", 3, bytes(range(16)))
ASK = TransactionAsk("orders", 7, 5, True, 2, (PARTITION, PARTITION._replace(partition=4)))
MARKER = TransactionMarker(7, 5, 12, True, 1, 9, 2, (PARTITION,))


def sent(message: dict[str, Any]) -> Fields:
    return Fields("message", locate_fields(encode_message(message)))


def received(answer: dict[str, Any]) -> dict[str, Any]:
    return decode_message(encode_message({**SUCCESS, **answer}))


@given(INT32, st.lists(ASKS, max_size=3))
def test_questions_come_back_as_they_were_sent(broker_id: int, asks: list[TransactionAsk]) -> None:
    message = AddOrVerify(broker_id, asks)
    assert message.to_message()["type"] == "add_or_verify"
    assert AddOrVerify.read(sent(message.to_message())) == message


@given(INT32, st.lists(MARKERS, max_size=3))
def test_markers_come_back_as_they_were_sent(
    broker_id: int, markers: list[TransactionMarker]
) -> None:
    message = WriteMarkers(broker_id, markers)
    assert message.to_message()["type"] == "write_markers"
    assert WriteMarkers.read(sent(message.to_message())) == message


@given(st.data(), st.lists(ASKS, max_size=3))
def test_answers_to_questions_come_back_as_they_were_sent(
    data: st.DataObject, asks: list[TransactionAsk]
) -> None:
    refused = CODES.filter(bool).map(TransactionAnswered)
    answered = [
        data.draw(
            refused
            | st.builds(
                TransactionAnswered,
                st.just(ErrorCode.NONE),
                st.integers(-1, 2**63 - 1),
                st.tuples(*[CODES for _ in ask.partitions]),
            )
        )
        for ask in asks
    ]
    answer = received(to_add_or_verify_answer(answered))
    assert read_add_or_verify_answer(answer, asks) == answered


@given(st.data(), st.lists(MARKERS, max_size=3))
def test_answers_to_markers_come_back_as_they_were_sent(
    data: st.DataObject, markers: list[TransactionMarker]
) -> None:
    codes = [data.draw(st.tuples(*[CODES for _ in marker.partitions])) for marker in markers]
    assert read_write_markers_answer(received(to_write_markers_answer(codes)), markers) == codes


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"producer_id": -1}, "producer_id takes an integer"),
        ({"producer_epoch": 2**15}, "producer_epoch takes an integer"),
        ({"client_version": -1}, "client_version takes an integer"),
        ({"partitions": None}, "partitions takes an array"),
        ({"partitions": [["t", bytes(15), 0]]}, "each of partitions takes"),
        ({"partitions": [["t", bytes(16), -1]]}, "each of partitions takes"),
        ({"partitions": [["t", bytes(16), True]]}, "each of partitions takes"),
        ({"partitions": [["t", bytes(16)]]}, "each of partitions takes"),
    ],
)
@pytest.mark.parametrize("message", [AddOrVerify(1, [ASK]), WriteMarkers(1, [MARKER])])
def test_a_row_that_makes_no_sense_is_refused_by_name(
    message: AddOrVerify | WriteMarkers, changes: dict[str, Any], complaint: str
) -> None:
    fields = copy.deepcopy(message.to_message())
    fields["transactions"][0].update(changes)
    with pytest.raises(KafkaError, match=f"transaction 0: {complaint}") as refused:
        type(message).read(sent(fields))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("message", "field", "value"),
    [
        (AddOrVerify(1, [ASK]), "is_add", 1),
        (AddOrVerify(1, [ASK]), "transactional_id", b"orders"),
        (WriteMarkers(1, [MARKER]), "is_commit", None),
        (WriteMarkers(1, [MARKER]), "number", -1),
        (WriteMarkers(1, [MARKER]), "coordinator_epoch", 2**31),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(
    message: AddOrVerify | WriteMarkers, field: str, value: object
) -> None:
    fields = copy.deepcopy(message.to_message())
    fields["transactions"][0][field] = value
    with pytest.raises(KafkaError, match=f"transaction 0: {field} takes"):
        type(message).read(sent(fields))


def test_the_partitions_of_one_message_are_bounded_together() -> None:
    half = tuple(PARTITION._replace(partition=index) for index in range(PARTITIONS_MAX // 2))
    most = WriteMarkers(1, [MARKER._replace(partitions=half)] * 2)
    assert WriteMarkers.read(sent(most.to_message())) == most
    beyond = WriteMarkers(1, [*most.markers, MARKER])
    with pytest.raises(KafkaError, match=f"at most {PARTITIONS_MAX} partitions"):
        WriteMarkers.read(sent(beyond.to_message()))


@pytest.mark.parametrize(
    "rows", [[], [{}], [{"codes": []}], [{"codes": [0, 0]}], [{"codes": [2**15]}], [{"codes": 0}]]
)
def test_an_answer_to_other_markers_is_refused(rows: list[Any]) -> None:
    with pytest.raises(DecodeError):
        read_write_markers_answer(received({"transactions": rows}), [MARKER])


@pytest.mark.parametrize(
    "row",
    [{}, {"error": 0, "number": 1}, {"error": 0, "number": 1, "codes": [0]}, {"error": "0"}],
)
def test_an_answer_to_another_question_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        read_add_or_verify_answer(received({"transactions": [row]}), [ASK])


def test_codes_of_newer_brokers_are_unknown_server_errors() -> None:
    answer = received({"transactions": [{"codes": [30_000]}]})
    assert read_write_markers_answer(answer, [MARKER]) == [(ErrorCode.UNKNOWN_SERVER_ERROR,)]


def test_an_error_of_the_whole_message_is_raised() -> None:
    error = {"code": 31, "name": "x", "message": "no", "retriable": False}
    with pytest.raises(KafkaError, match="no"):
        read_write_markers_answer({"error": error}, [MARKER])
