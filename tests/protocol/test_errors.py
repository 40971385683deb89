"""The error codes against kio's table, which is generated from Kafka's own sources."""

from __future__ import annotations

import pytest

from echoless.protocol.errors import MESSAGE_CHARACTERS_MAX, ErrorCode, KafkaError


@pytest.mark.parametrize("code", list(ErrorCode))
def test_name_value_and_retriability_are_kafkas(code):
    """A code has the name, the number and the retriability that clients know it by."""
    from kio.schema.errors import ErrorCode as KioErrorCode

    theirs = KioErrorCode(code.value)
    assert (code.name.casefold(), code.retriable) == (theirs.name.casefold(), theirs.retriable)


def test_message_stands_behind_the_codes_name():
    """A KafkaError reads as its code and what was found."""
    error = KafkaError(ErrorCode.INVALID_RECORD, "found 3, expected 2")
    assert str(error) == "INVALID_RECORD: found 3, expected 2"
    assert (error.code, error.message) == (ErrorCode.INVALID_RECORD, "found 3, expected 2")


def test_error_without_a_message_reads_as_its_code():
    """A KafkaError without a message is its code's name alone."""
    assert str(KafkaError(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER"


def test_a_message_that_quotes_a_client_at_length_is_cut():
    """An answer of an older version could not carry it, and its encoder would fail."""
    error = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "x" * 40_000)
    assert len(error.message) == MESSAGE_CHARACTERS_MAX + len("...")
