"""The settings of a copier."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from echoless.client.copier.position import METADATA_CHARACTERS_MAX
from echoless.client.groups.member import MemberSettings

PROTOCOL: Final = "echoless-copier"
"""The assignor's name. A group lets members of one name in, so that no ordinary consumer commits over a position."""

Start = Literal["earliest", "latest", "none"]


@dataclass(slots=True, frozen=True, kw_only=True)
class CopierSettings:
    """The settings of a copier: times in seconds. Raises `ValueError` unless exactly one of `topics` and `pattern` is given."""

    group: str
    """The consumer group whose commits hold the positions."""
    topics: tuple[str, ...] = ()
    """The topics to read."""
    pattern: str | None = None
    """A regular expression, in place of `topics`: reads all whose whole name matches, those created later, too."""
    starting_offsets: Start = "earliest"
    """The start in a partition without a position; none: such a partition is an error."""
    bare_offsets: bool = False
    """Whether an offset that was committed without a copier's state is a position: all records before it are copied,
    and none from there on."""
    transactions: bool = False
    """Whether records and positions are committed in transactions, for readers of committed records. Input and output are
    in one cluster then.
    """
    ends: bool = False
    """Whether the copier is done at what was the end of its partitions when they were assigned."""
    commit_interval_s: float = 1.0
    """Time between commits of positions."""
    commit_records_max: int = 10_000
    """A position is committed after this many records at the latest."""
    metadata_characters_max: int = METADATA_CHARACTERS_MAX
    """The brokers' limit on the metadata of a commit, if it is not the default."""
    id_expiration_s: float = 86_400.0
    """The brokers' `producer_id_expiration_ms` (Kafka: `producer.id.expiration.ms`), if it is not the default."""
    topics_interval_s: float = 30.0
    """Interval between searches for new topics and partitions."""
    instance_id: str | None = None
    """Kafka's `group.instance.id`: a member that keeps its partitions over a restart."""
    session_timeout_s: float = 10.0
    rebalance_timeout_s: float = 60.0
    request_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if bool(self.topics) == (self.pattern is not None):
            raise ValueError("a copier reads either topics or a pattern")
        if self.pattern is not None:
            re.compile(self.pattern)

    @property
    def member(self) -> MemberSettings:
        """The settings of its member of the group."""
        return MemberSettings(
            group=self.group,
            protocol=PROTOCOL,
            instance_id=self.instance_id,
            session_timeout_s=self.session_timeout_s,
            rebalance_timeout_s=self.rebalance_timeout_s,
            request_timeout_s=self.request_timeout_s,
        )
