"""The `error` that every native answer carries."""

from __future__ import annotations

from typing import Any, Final

from echoless.protocol.errors import ErrorCode, KafkaError


def failure(error: KafkaError) -> dict[str, Any]:
    """The error as a field of an answer: Kafka's code and name, the reason, and whether to retry."""
    return {
        "error": {
            "code": int(error.code),
            "name": error.code.name,
            "message": error.message,
            "retriable": error.code.retriable,
        }
    }


SUCCESS: Final = failure(KafkaError(ErrorCode.NONE))
