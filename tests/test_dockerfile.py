"""The image's recipe, checked without an engine."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def copied() -> set[str]:
    """The paths of this tree that the Dockerfile copies."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return {
        path.removesuffix("/") for path in re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE)
    }


def test_the_engine_is_given_what_the_image_copies() -> None:
    """Everything else is left out by `.dockerignore`, so a new package has to be let in."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8")
    assert set(re.findall(r"^!(\S+)$", ignored, re.MULTILINE)) == copied()


def test_the_image_has_every_room() -> None:
    """Links of `src/echoless` lead to the rooms: one that is not copied is missing in the image, as Spark's has to be."""
    links = {
        path.readlink().name for path in (ROOT / "src/echoless").iterdir() if path.is_symlink()
    }
    assert (links - {"pipeline"}) | {"src", "pyproject.toml"} <= copied()
    assert "pipeline" in links - copied()
    assert len(links) > 8
