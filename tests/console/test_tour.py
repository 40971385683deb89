"""docs/tour.md: every command is played, what it prints is compared, and its pictures are made.

`TOUR_PICTURES=docs/figures pytest tests/console/test_tour.py` renews the pictures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.echoless import REPOSITORY, Echoless

if TYPE_CHECKING:
    from tests.console.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = REPOSITORY / "docs" / "tour.md"
PICTURE_BYTES_MAX = 150_000
_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Tour:
    """The blocks of the page in their order, played against one broker."""

    def __init__(self, broker: Echoless, directory: Path) -> None:
        self._blocks = iter(_BLOCK.findall(PAGE.read_text(encoding="utf-8")))
        self.directory = directory
        self._environment = {
            **os.environ,
            "ECHOLESS_BOOTSTRAP_SERVER": broker.kafka_address,
            "ECHOLESS_ADMIN": broker.admin_address,
        }
        (directory / ".venv").symlink_to(sys.prefix)

    def next(self, kind: str) -> str:
        """The text of the next block, which is of this kind."""
        found, text = next(self._blocks)
        assert found == kind
        return str(text)

    def play(self, expected: str) -> str:
        """Runs the next block of commands, whose first line is `expected`; returns what it prints."""
        commands = self.next("sh")
        assert commands.splitlines()[0] == expected
        done = subprocess.run(
            ["bash", "-ec", f"source .venv/bin/activate\n{commands}"],
            cwd=self.directory,
            check=False,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_over(self) -> bool:
        return next(self._blocks, None) is None


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """The directory of the pictures."""
    return Path(os.environ.get("TOUR_PICTURES", tmp_path)).absolute()


@pytest.fixture
def tour(broker: Echoless, tmp_path: Path) -> Tour:
    directory = tmp_path / "clone"
    directory.mkdir()
    return Tour(broker, directory)


def kept(picture: Path) -> None:
    """The picture is small, and the page shows it."""
    assert picture.stat().st_size < PICTURE_BYTES_MAX
    assert f"(figures/{picture.name})" in PAGE.read_text(encoding="utf-8")


def test_the_tour(
    tour: Tour,
    broker: Echoless,
    open_page: OpenPage,
    pictures: Path,
) -> None:
    """From the first record to the lost acknowledgement in the browser."""
    assert tour.next("sh") == "make serve\n"  # as `broker` has done
    ready = tour.next("text")
    assert re.match(
        r"ready broker_id=1 listen=127\.0\.0\.1:\d+ native=127\.0\.0\.1:\d+ admin=127\.0\.0\.1:8080\n$",
        ready,
    )
    page = open_page(broker)
    page.locator("#link[data-state=live]").wait_for()
    page.set_viewport_size({"width": 1200, "height": 420})
    tour.play("source .venv/bin/activate")

    assert tour.play("seq 3 | echoless produce orders") == tour.next("text")
    row = page.locator("event-list tr[data-kind=stored]")
    row.wait_for()
    assert "at offset 0" in row.inner_text()
    assert "1 producer" in tour.play("echoless producers orders")
    page.screenshot(path=pictures / "tour-stored.png")
    kept(pictures / "tour-stored.png")

    assert "close_after" in tour.play(
        "echoless faults add --match api=produce --match topic=orders --times 1 close_after"
    )
    page.get_by_text("FAULTS ACTIVE: 1").wait_for()
    tour.play("echo 4 | echoless produce orders")
    page.locator("event-list tr[data-kind=repeat]").wait_for()
    page.get_by_text("FAULTS ACTIVE").wait_for(state="hidden")
    page.screenshot(path=pictures / "tour-lost.png")
    kept(pictures / "tour-lost.png")
    assert tour.play("echoless consume orders") == tour.next("text")

    assert "stored before at offset 3" in tour.play("echoless decisions")
    drawn = page.context.new_page()
    drawn.goto((tour.directory / "run.svg").as_uri())
    drawn.locator("svg").screenshot(path=pictures / "tour-run.png")
    drawn.close()
    kept(pictures / "tour-run.png")

    assert re.search(r"[1-9]\d* records are stored twice; with it, 0\.", tour.play("echoless demo"))
    tour.play("echoless faults clear")
    assert tour.is_over()
