"""The error codes against kio's table, which is generated from Kafka's own sources."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode, KafkaError


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
