"""The tables of docs/hostile.md: written by a run, and compared with the attackers there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.hostile.siege.attackers import ATTACKERS
from tests.hostile.siege.verdict import Cost, Verdict

PAGE = Path(__file__).parents[3] / "docs" / "hostile.md"
EACH = "each attacker alone: written by python -m tests.hostile.siege --each --write-docs"
TOGETHER = "all at once: written by python -m tests.hostile.siege --write-docs"
_END = "<!-- end -->"
_COST_HEAD = (
    "batches | median wait | 99 % | longest wait | longest hold of the loop | syncs on it |"
)


class Row(NamedTuple):
    """One attacker as the page describes it."""

    name: str
    does: str


def write_each(verdicts: Sequence[Verdict]) -> None:
    """One row for each attacker that besieged a broker alone; rows of others stay."""
    rows = {row.split(" ")[1]: row for row in _lines_of_rows()}
    for verdict in verdicts:
        for name, tries in verdict.tries.items():
            count = f"{sum(tries.values()):,}"
            rows[name] = f"| {name} | {ATTACKERS[name].does} | {count} | {_cost(verdict.siege)} |"
    head = [f"| attacker | what it tries | tries | {_COST_HEAD}", f"|---|---|---|{'---|' * 6}"]
    _replace(EACH, head + [rows[name] for name in ATTACKERS if name in rows])


def write_together(verdict: Verdict) -> None:
    """The phase without attackers, the siege, and how often each attacker tried what."""
    tries = [
        f"| {name} | {ATTACKERS[name].does} | {sum(one.values()):,} |"
        for name, one in verdict.tries.items()
    ]
    _replace(
        TOGETHER,
        [
            f"Seed {verdict.seed}, {verdict.seconds:.0f} s, {verdict.resident_bytes >> 20} MiB resident.",
            "",
            f"| phase | {_COST_HEAD}",
            f"|---|{'---|' * 6}",
            f"| without attackers | {_cost(verdict.peace)} |",
            f"| all at once | {_cost(verdict.siege)} |",
            "",
            "| attacker | what it tries | tries |",
            "|---|---|---|",
            *tries,
        ],
    )


def read_rows() -> list[Row]:
    """The attackers that the page describes."""
    table = _part(PAGE.read_text(), TOGETHER).partition("| attacker |")[2]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [Row(*line.strip("| ").split(" | ")[:2]) for line in lines]


def read_each() -> list[Row]:
    """The attackers of which the page says what each of them costs alone."""
    return [Row(*line.strip("| ").split(" | ")[:2]) for line in _lines_of_rows()]


def _lines_of_rows() -> list[str]:
    lines = _part(PAGE.read_text(), EACH).splitlines()
    return [line for line in lines if line.startswith("| ")][1:]


def _cost(cost: Cost | None) -> str:
    if cost is None:
        return "- | - | - | - | - | -"
    times = (cost.wait_p50_s, cost.wait_p99_s, cost.wait_max_s, cost.held_s)
    shown = " | ".join(f"{seconds * 1000:.1f} ms" for seconds in times)
    return f"{cost.batches:,} | {shown} | {cost.syncs}"


def _part(page: str, title: str) -> str:
    begin = f"<!-- {title} -->"
    assert page.count(begin) == 1, f"{PAGE.name} has no part {begin!r}"
    return page.partition(begin)[2].partition(_END)[0]


def _replace(title: str, lines: Sequence[str]) -> None:
    before, begin, rest = PAGE.read_text().partition(f"<!-- {title} -->")
    _, end, after = rest.partition(_END)
    PAGE.write_text("".join((before, begin, "\n\n", "\n".join(lines), "\n\n", end, after)))
