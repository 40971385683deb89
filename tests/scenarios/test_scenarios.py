"""Every scenario shows what its file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.script import replay
from tests.scenarios.stage import Stage

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_scenario_plays_as_written(path: Path) -> None:
    """What changed on purpose: `python -m tests.scenarios NAME`, and look at the difference."""
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
