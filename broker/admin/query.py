"""The numbers in a path's query. Imports aiohttp: loaded with the HTTP app."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from echoless.broker.admin.refusal import RefusalError
from echoless.broker.config.values import INT64_MAX, integer
from echoless.broker.decisions.events import Event
from echoless.broker.decisions.stream import Selection

INT32_MAX: Final = 2**31 - 1
_INDEX_DIGITS_MAX: Final = 10


def read_count(query: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    """A number within bounds. Raises `RefusalError`, as do all functions here."""
    return _integer(query[name], name, least, most) if name in query else default


def read_optional(query: Mapping[str, str], name: str, most: int = INT64_MAX) -> int | None:
    """A number from 0 up; None if it is not given."""
    return _integer(query[name], name, 0, most) if name in query else None


def read_index(text: str) -> int | None:
    """A partition index from a path; None if the text is not one."""
    is_index = text.isascii() and text.isdecimal() and len(text) <= _INDEX_DIGITS_MAX
    return int(text) if is_index else None


def read_fact(query: Mapping[str, str], name: str) -> bool:
    """`true` or `false`; false if it is not given."""
    text = query.get(name, "false")
    if text not in {"true", "false"}:
        raise RefusalError(HTTPStatus.BAD_REQUEST, f"{name}: takes true or false, not {text!r}")
    return text == "true"


def read_choice(query: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """One of several words; the first if it is not given."""
    text = query.get(name, choices[0])
    if text not in choices:
        takes = ", ".join(choices)
        raise RefusalError(HTTPStatus.BAD_REQUEST, f"{name}: takes one of {takes}, not {text!r}")
    return text


def read_selection(
    query: Mapping[str, str], may_see: Callable[[Event], bool] | None = None
) -> Selection:
    """The selection of events by `producer_id`, `topic` and `partition`, of those that a caller may see."""
    return Selection(
        read_optional(query, "producer_id"),
        query.get("topic"),
        read_optional(query, "partition", INT32_MAX),
        may_see,
    )


def _integer(text: str, name: str, least: int, most: int) -> int:
    try:
        return integer(least, most).read(text)
    except ValueError as error:
        raise RefusalError(HTTPStatus.BAD_REQUEST, f"{name}: {error}") from error
