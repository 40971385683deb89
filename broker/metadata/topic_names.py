"""The names that a topic may have (Kafka's `Topic.validate`). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from echoless.protocol.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249
"""Leaves room for `-<partition>` and what Kafka appends to a directory that is being deleted."""
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises `KafkaError` INVALID_TOPIC_EXCEPTION."""
    if not name:
        raise _invalid("the topic name is empty")
    if name in {".", ".."}:
        raise _invalid(f"the topic name cannot be {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise _invalid(f"the topic name has {len(name)} characters, at most {NAME_LENGTH_MAX} fit")
    if not _LEGAL.fullmatch(name):
        raise _invalid(
            f"the topic name {name!r} contains characters other than ASCII letters and digits, "
            f"'.', '_' and '-'"
        )


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Raises `KafkaError` INVALID_TOPIC_EXCEPTION for a name that differs only in '.' and '_'.

    Metric names cannot tell such topics apart, so Kafka refuses the second one.
    """
    if "." not in name and "_" not in name:
        return
    plain = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == plain:
            raise _invalid(f"the topic name {name!r} collides with the existing topic {other!r}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
