"""`python -m echoless.testkit.scenarios --write-docs`: plays everything, and writes docs/scenarios.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from echoless.testkit.scenarios.everything import play_all
from echoless.testkit.scenarios.page import render_page, render_verdicts

_PAGE: Final = Path(__file__).parents[4] / "docs" / "scenarios.md"


def main() -> int:
    """Prints the table; returns 1 if a scenario did not end as it must."""
    runs = play_all()
    if sys.argv[1:] == ["--write-docs"]:
        _PAGE.write_text(render_page(runs))
    sys.stdout.write(render_verdicts(runs))
    problems = [one for one in runs.values() if one.problem is not None]
    for one in problems:
        sys.stderr.write(f"{one.scenario}, {one.client}: {one.problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
