"""Every scenario shows what its file says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scenarios.script import replay
from tests.scenarios.stage import Stage

ROOT = Path(__file__).parents[2]
FILES = sorted(Path(__file__).parent.glob("*.txt"))
EXCERPT = re.compile(r"<!-- (tests/scenarios/\S+) -->\n```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_scenario_plays_as_written(path: Path) -> None:
    """After a deliberate change run `python -m tests.scenarios NAME`, and look at the difference."""
    script = path.read_text(encoding="utf-8")
    with Stage() as stage:
        assert replay(script, stage.play) == script
        assert stage.findings == []


def test_a_script_is_replayed_in_place() -> None:
    """Prose and commands stay, what commands showed before is replaced by what they show now."""
    script = "# prose\n\n> one\nold\nolder\n> two\n\n# more\n"
    assert replay(script, lambda command: [command.upper()]) == (
        "# prose\n\n> one\nONE\n> two\nTWO\n\n# more\n"
    )


def test_a_line_that_nothing_shows_is_a_mistake() -> None:
    """Prose without its mark would be taken for what a command shows, and be lost."""
    with pytest.raises(ValueError, match="neither"):
        replay("prose\n", lambda _: [])


def test_the_page_shows_what_the_scenarios_show() -> None:
    """Each excerpt in `docs/replication.md` is in its file, line by line."""
    page = (ROOT / "docs/replication.md").read_text(encoding="utf-8")
    excerpts = EXCERPT.findall(page)
    assert len(excerpts) == page.count("<!-- tests/scenarios/")
    for path, text in excerpts:
        assert f"\n{text}" in (ROOT / path).read_text(encoding="utf-8"), text


def test_the_page_names_every_scenario() -> None:
    """No scenario is missing from the page."""
    page = (ROOT / "docs/replication.md").read_text(encoding="utf-8")
    assert [path.name for path in FILES if path.name not in page] == []
