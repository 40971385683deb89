"""The errors in an answer of the Kafka port, whatever its API and version, for rules about answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from echoless.broker.handlers.merged_responses import response_codec
from echoless.protocol.errors import ErrorCode
from echoless.protocol.framing import LENGTH_SIZE
from echoless.protocol.headers import skip_tagged_fields
from echoless.protocol.registry import Api

logger = logging.getLogger(__name__)

_CORRELATION_SIZE: Final = 4
_KNOWN: Final = {int(code): code for code in ErrorCode}
_API_VERSIONS: Final = "api_versions"
"""The only API whose answers have the old header in all versions."""


def codes_in(api: Api, version: int, frame: bytes) -> frozenset[ErrorCode]:
    """The errors of a framed answer, of all of its rows; success is none."""
    position = LENGTH_SIZE + _CORRELATION_SIZE
    if api.is_flexible(version) and api.name != _API_VERSIONS:
        position = skip_tagged_fields(frame, position)
    read, _ = response_codec(api.name, version)
    try:
        answer = read(frame[position:])
    except Exception:  # noqa: BLE001 - of kio, for what it cannot read
        # kio does not read all that Kafka writes: the start of no transaction, which is -1, for instance.
        logger.warning(
            "the answer to %s v%d cannot be read for rules about errors", api.name, version
        )
        return frozenset()
    return frozenset(_KNOWN[code] for code in _codes(answer) if code in _KNOWN) - {ErrorCode.NONE}


def _codes(value: Any) -> Iterator[int]:
    """The numbers, from kio's own type of errors."""
    if isinstance(value, Enum):
        if type(value).__name__ == ErrorCode.__name__:
            yield int(value.value)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _codes(getattr(value, field.name))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | memoryview):
        for one in value:
            yield from _codes(one)
