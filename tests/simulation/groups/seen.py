"""Everything that members of groups saw: what they joined, were assigned, committed and read back.

Plain records, filled while a history runs and judged by `checkers/groups.py` afterwards; that no two members of the
consumer protocol own a partition at once is judged on the spot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from tests.simulation.observations import Observations

REFUSALS: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Answers after which a commit has not been stored and never will be."""
Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(slots=True, kw_only=True)
class Commit:
    """One OffsetCommit of one partition. No two commits have the same offset."""

    group_id: str
    place: Place
    offset: int
    member_id: str
    epoch: int
    """The generation, or the member's epoch; -1: not of a member."""
    sent_at: float
    answered_at: float | None = None
    code: ErrorCode | None = None
    """None: no answer came."""


class Read(NamedTuple):
    """An offset that a coordinator gave as committed; -1: none."""

    group_id: str
    place: Place
    offset: int
    began_at: float
    ended_at: float


class Joined(NamedTuple):
    """A member of the classic protocol was given a generation."""

    group_id: str
    generation_id: int
    member_id: str
    asked_at: float
    at: float


class Synced(NamedTuple):
    """A member of the classic protocol was given its assignment, which its leader wrote under a name of its own."""

    group_id: str
    generation_id: int
    member_id: str
    author: str
    places: frozenset[Place]


@dataclass(slots=True)
class Holding:
    """A member of the consumer protocol owns a partition: from being assigned it to letting go of it."""

    group_id: str
    place: Place
    member_id: str
    epoch: int
    """The member's when it took the partition."""
    began_at: float
    ended_at: float | None = None


@dataclass(slots=True)
class Seen:
    """All members' records of one history."""

    observations: Observations
    session_s: float
    """No coordinator gives a member up that it answered so recently."""
    commits: list[Commit] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    joined: list[Joined] = field(default_factory=list)
    synced: list[Synced] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    answered_at: dict[str, float] = field(default_factory=dict)
    """By member id: when it sent the last heartbeat that was answered without an error."""

    def now(self) -> float:
        return self.observations.clock()

    COUNTED: ClassVar = (
        "commits accepted",
        "commits refused",
        "commits without an answer",
        "offsets read back",
        "generations begun",
        "partitions taken",
    )

    def counts(self) -> dict[str, int]:
        """How often what happened, by the names in `COUNTED`."""
        codes = [one.code for one in self.commits]
        numbers = (
            codes.count(ErrorCode.NONE),
            sum(code in REFUSALS for code in codes),
            codes.count(None),
            len(self.reads),
            len({one[:2] for one in self.joined}),
            len(self.holdings),
        )
        return dict(zip(self.COUNTED, numbers, strict=True))

    def new_commit(self, group_id: str, place: Place, member_id: str, epoch: int) -> Commit:
        """A commit that is being sent."""
        commit = Commit(
            group_id=group_id,
            place=place,
            offset=len(self.commits),
            member_id=member_id,
            epoch=epoch,
            sent_at=self.now(),
        )
        self.commits.append(commit)
        return commit

    def take(self, group_id: str, place: Place, member_id: str, epoch: int) -> Holding:
        """A member owns a partition from now on, and no other may that still is in the group."""
        now = self.now()
        is_zombie = (
            self._silent_s(member_id) >= self.session_s
        )  # it reads an answer from before a pause
        for other in self.holdings:
            if (other.group_id, other.place) != (group_id, place) or other.ended_at is not None:
                continue
            silent_s = self._silent_s(other.member_id)
            if silent_s < self.session_s and not is_zombie:
                self.observations.find(
                    f"G1: {member_id} of {group_id} is given {place} in epoch {epoch}; {other.member_id} has it "
                    f"since epoch {other.epoch}, and was answered {silent_s:.3f} s ago"
                )
        holding = Holding(group_id, place, member_id, epoch, now)
        self.holdings.append(holding)
        return holding

    def _silent_s(self, member_id: str) -> float:
        return self.now() - self.answered_at.get(member_id, 0.0)
