"""The page of figures has a place for every proof, and a run writes only its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proofs import page
from tests.proofs.parts import PARTS


@pytest.mark.parametrize("name", PARTS)
def test_every_proof_has_its_part(name: str) -> None:
    """Figures that had no place would be lost at the end of a long run."""
    assert page.PAGE.read_text().count(page.marker(name)) == 1


def test_a_run_writes_its_own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old content is replaced; the parts around it stay as they are."""
    copy = tmp_path / "proofs.md"
    copy.write_text(page.PAGE.read_text())
    monkeypatch.setattr(page, "PAGE", copy)
    page.write("soak", "Commit a.", {"records sent": 1})
    before = copy.read_text()
    page.write("nemesis", "Commit b.", {"records sent": 1_234_567})
    page.write("nemesis", "Commit c.", {"records sent": 7})
    text = copy.read_text()
    assert "| records sent | 7 |" in text
    assert "Commit b." not in text
    assert text.partition(page.marker("soak"))[2] == before.partition(page.marker("soak"))[2]
