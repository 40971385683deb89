"""Writes what the scenarios show now into their files: `python -m tests.scenarios [NAME ...]`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.scenarios.script import replay
from tests.scenarios.stage import Stage

PLACE = Path(__file__).parent


def main(names: list[str]) -> None:
    """Rewrites all scenarios, or the named ones."""
    for path in sorted(PLACE.glob("*.txt")):
        if names and path.stem not in names:
            continue
        with Stage() as stage:
            text = replay(path.read_text(encoding="utf-8"), stage.play)
            path.write_text(text, encoding="utf-8")
            for finding in stage.findings:
                print(f"{path.stem}: {finding}")


main(sys.argv[1:])
