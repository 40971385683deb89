"""The verdict of a run of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rich.table import Table

from tests.group_members.judge import Findings
from tests.proofs import verdict


@dataclass(slots=True, kw_only=True)
class Verdict(verdict.Verdict):
    """The work of the groups, and their faults."""

    disturbances: int = 0
    coordinators_killed: int = 0
    groups: dict[str, tuple[int, Findings]] = field(default_factory=dict)
    """By name: the processes that were its members, and the findings."""

    def join(self, name: str, members: int, findings: Findings) -> None:
        """Add a group's part."""
        self.groups[name] = (members, findings)

    def figures(self) -> Mapping[str, int]:
        found = [findings for _, findings in self.groups.values()]
        return {
            "disturbances": self.disturbances,
            "coordinators killed": self.coordinators_killed,
            "members": sum(members for members, _ in self.groups.values()),
            "records read": sum(one.records_read for one in found),
            "commits answered": sum(one.commits_answered for one in found),
            "generations": sum(one.generations for one in found),
            "assignments of partitions to members": sum(one.assignments for one in found),
        }

    def _failures(self) -> list[str]:
        return [
            f"{name}: {problem}"
            for name, (_, findings) in self.groups.items()
            for problem in findings.problems
        ]

    def _tables(self) -> Iterable[Table]:
        table = Table(title=self.title)
        for column in ("group", "members", "generations", "assignments", "commits", "read"):
            table.add_column(column)
        for name, (members, one) in self.groups.items():
            counts = (members, one.generations, one.assignments, one.commits_answered)
            table.add_row(name, *map(str, counts), f"{one.records_read:,}")
        yield table
