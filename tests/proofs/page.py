"""The figures of docs/proofs.md: one part for each proof, written by the command that ran it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "proofs.md"
_END: Final = "<!-- end -->"


def write(name: str, about: str, figures: Mapping[str, int]) -> None:
    """Replace the part of this proof."""
    rows = [f"| {what} | {count:,} |" for what, count in figures.items()]
    lines = [about, "", "| | |", "|---|---|", *rows]
    before, begin, rest = PAGE.read_text().partition(marker(name))
    _, end, after = rest.partition(_END)
    assert end, f"{PAGE} has no part {marker(name)}"
    PAGE.write_text("".join((before, begin, "\n\n", "\n".join(lines), "\n\n", end, after)))


def marker(name: str) -> str:
    """The line before the part that is written."""
    return f"<!-- {name}: written by python -m tests.proofs -->"
