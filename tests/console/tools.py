"""Tools that the tests of the console need beside Chromium: `tests/toolchain.py` gets them from npm."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.tool import Tool, run

_DIRECTORY: Final = Path(__file__).parents[2] / ".cache" / "axe-core"
_VERSION: Final = "4.14.1"
AXE: Final = _DIRECTORY / "node_modules" / "axe-core" / "axe.min.js"
"""The checker of accessibility (MPL-2.0), which is used here and never part of what is shipped."""


def _fetch() -> None:
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    run(
        [
            "npm",
            "install",
            "--prefix",
            str(_DIRECTORY),
            "--no-audit",
            "--no-fund",
            f"axe-core@{_VERSION}",
        ]
    )


TOOLS = (
    Tool(
        name="axe-core",
        used_by="the accessibility of the console",
        is_present=AXE.exists,
        prepare=_fetch,
        needs=("node", "npm"),
    ),
)
