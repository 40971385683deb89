"""Topics that a reader reads: `subscribe`, `subscribePattern` or `assign`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Exactly one of the three ways."""

    names: tuple[str, ...] = ()
    """Names that `subscribe` lists."""
    pattern: str | None = None
    """Searched in the names of topics, not matched: `a` finds `bar`."""
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Topics and the partitions that `assign` lists."""

    @property
    def wanted_names(self) -> tuple[str, ...] | None:
        """Names to look up; None: all topics."""
        if self.pattern is not None:
            return None
        return self.names or tuple(topic for topic, _ in self.assigned)

    def takes(self, topic: str) -> bool:
        """Whether a topic that was found is read; if names were looked up, it is one of them."""
        return self.pattern is None or re.search(self.pattern, topic) is not None


def parse_subscribe(text: str) -> TopicChoice:
    """Reads names with commas between them. Raises `ValueError`."""
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    if not names:
        raise ValueError("names of topics are needed, with commas between them")
    return TopicChoice(names=names)


def parse_pattern(text: str) -> TopicChoice:
    r"""Reads a regular expression; Java's that Python does not have (`\p{Alpha}`) are refused. Raises `ValueError`."""
    if not text:
        raise ValueError("a regular expression is needed")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"Python's re does not read it: {error}") from error
    return TopicChoice(pattern=text)


def parse_assign(text: str) -> TopicChoice:
    """Reads `{"orders": [0, 1]}`. Raises `ValueError`."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if type(found) is not dict or not all(map(_is_numbers, found.values())):
        raise ValueError('JSON like {"orders": [0, 1]} is needed')
    assigned = {topic: tuple(sorted(set(numbers))) for topic, numbers in found.items()}
    if not any(assigned.values()):
        raise ValueError("it names no partition")
    return TopicChoice(assigned=tuple(sorted(assigned.items())))


def _is_numbers(value: Any) -> bool:
    return type(value) is list and all(type(one) is int for one in value)
