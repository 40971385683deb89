"""The log of one member's life: the lines that `subscribe` writes (tests/compatibility/README.md), and kcat's."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Assigned(NamedTuple):
    """From here on the member reads these partitions, from their committed offsets."""

    time_us: int
    generation: int
    """-1: its client does not say."""
    partitions: tuple[int, ...]


class Revoked(NamedTuple):
    partitions: tuple[int, ...]


class Read(NamedTuple):
    partition: int
    offset: int
    number: int


class Committing(NamedTuple):
    """A commit is about to be sent: the offset of each partition."""

    offsets: dict[int, int]


class Committed(NamedTuple):
    """It was answered without an error."""

    time_us: int
    offsets: dict[int, int]


class Other(NamedTuple):
    """A line for people only, such as a commit that failed."""

    text: str


Event = Assigned | Revoked | Read | Committing | Committed | Other


def parse(line: str) -> Event:
    """Reads one line of `subscribe`."""
    time, name, *parts = line.split(" ")
    if name in {"failed", "crashed", "rebalancing"}:
        return Other(" ".join([name, *parts]))
    numbers = [int(part) for part in parts]
    if name == "assigned":
        return Assigned(int(time), numbers[0], tuple(numbers[1:]))
    if name == "revoked":
        return Revoked(tuple(numbers))
    if name == "record":
        return Read(*numbers)
    offsets = dict(zip(numbers[::2], numbers[1::2], strict=True))
    if name == "committing":
        return Committing(offsets)
    assert name == "committed", line
    return Committed(int(time), offsets)


def parse_kcat(line: str) -> Event:
    """Reads one line of kcat with the format `%p %o %s`."""
    return Read(*map(int, line.split(" ")))


class Tail:
    """The events of a log that still grows; a line that a kill has cut off is left out."""

    def __init__(self, path: Path, *, is_kcat: bool) -> None:
        self.events: list[Event] = []
        self._path = path
        self._parse = parse_kcat if is_kcat else parse
        self._position = 0

    def read(self) -> list[Event]:
        """Return the events that are new since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            log.seek(self._position)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        found = [self._parse(line) for line in whole.decode().splitlines()]
        self.events += found
        return found
