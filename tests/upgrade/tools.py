"""The earlier releases, for `tests/toolchain.py`."""

from __future__ import annotations

from tests.upgrade.releases import TOOLS

__all__ = ["TOOLS"]
