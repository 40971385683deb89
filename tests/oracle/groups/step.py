"""The steps of a history: requests, whose member ids are names that each side translates, and silences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.oracle.messages import Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A member sends nothing until both brokers have forgotten it."""

    client: str

    def __str__(self) -> str:
        return f"-- {self.client} is silent --"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request."""

    number: int
    client: str
    api: str
    version: int
    values: Mapping[str, Plain] = field(default_factory=dict)
    note: str = ""
    """Says whether it is odd, for people."""

    def __str__(self) -> str:
        shown = {key: value for key, value in self.values.items() if key != "protocols"}
        if "protocols" in self.values:
            shown["protocols"] = [one["name"] for one in self.values["protocols"]]
        return f"{self.number}: {self.client} {self.api} v{self.version} {self.note} {shown}"


Step = Request | Silence
