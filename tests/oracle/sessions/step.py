"""The steps of a history. Pure."""

from __future__ import annotations

from typing import NamedTuple

IDS_FROM = 13
"""The version of Fetch that names topics by id."""
MAIN, OTHER, EARLIER, MISSING = "t", "u", "u before", "missing"
"""The topic that stays, one that comes and goes, the one that had its name before (by id), and one that never was."""
PARTITIONS = {MAIN: 3, OTHER: 2}


class Fetch(NamedTuple):
    """A request of a session."""

    slot: int
    """Which of the client's sessions."""
    how: str
    """The kind of id and epoch that are sent (`SessionAsker.session`)."""
    version: int
    rows: tuple[tuple[str, int, int], ...] = ()
    """Topic, partition and offset."""
    forgets: tuple[tuple[str, int], ...] = ()
    bytes_max: int = 2**31 - 1
    isolation_level: int = 0


class Produce(NamedTuple):
    """Batches of one record."""

    topic: str
    partition: int
    count: int


class DeleteRecords(NamedTuple):
    topic: str
    partition: int
    offset: int


class ToggleTopic(NamedTuple):
    """Creates the other topic, or deletes it if it is there."""


Step = Fetch | Produce | DeleteRecords | ToggleTopic
