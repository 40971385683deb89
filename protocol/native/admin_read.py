"""The message with which a broker reads an admin document of another one, for the console.

Read and built like those of `replication.py`. `docs/native.md` is the reference. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from echoless.protocol.native.answers import Answer
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.replication import read_error

ADMIN_READ: Final = "admin_read"
"""The type of the message."""
_STATUS_MAX: Final = 599


@dataclass(slots=True, frozen=True, kw_only=True)
class AdminRead:
    """Asks for one document, on behalf of a caller that the asking broker has admitted."""

    name: str
    """The document: `overview`, `topics` and so on."""
    query: Mapping[str, str]
    names: Mapping[str, str]
    """The parts of the path, such as the topic."""
    principal: str
    address: str
    may_change: bool

    @classmethod
    def read(cls, fields: Fields) -> AdminRead:
        return cls(
            name=fields.text("name"),
            query=fields.text_map("query"),
            names=fields.text_map("names"),
            principal=fields.text("principal"),
            address=fields.text("address"),
            may_change=fields.boolean("may_change", default=False),
        )

    def to_message(self) -> dict[str, Any]:
        return {
            "type": ADMIN_READ,
            "name": self.name,
            "query": dict(self.query),
            "names": dict(self.names),
            "principal": self.principal,
            "address": self.address,
            "may_change": self.may_change,
        }


def read_admin_answer(answer: Mapping[str, Any]) -> tuple[int, str]:
    """The status and the JSON. Raises `KafkaError`, `DecodeError`."""
    error = read_error(answer)
    if error is not None:
        raise error
    fields = Answer("the answer", answer)
    return fields.integer("status", 100, _STATUS_MAX), fields.text("document")
