"""A seed that is new with every commit and the same for everyone who tests that commit."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Final

_REPOSITORY: Final = Path(__file__).parents[2]
_DIGITS: Final = 12
"""Hexadecimal digits of the commit that make the seed: 48 bits, so that ranges do not overlap."""


@functools.cache
def commit() -> str | None:
    """The commit that is checked out; None outside a repository."""
    command = ["git", "-C", str(_REPOSITORY), "rev-parse", "HEAD"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def fresh_seed() -> int:
    """The first digits of the commit; 0 outside a repository."""
    return seed_of(commit())


def seed_of(commit_hash: str | None) -> int:
    """The seed of a commit."""
    return 0 if commit_hash is None else int(commit_hash[:_DIGITS], 16)


def seed_line() -> str:
    """The origin of the fresh seed, for the header of a run."""
    if commit() is None:
        return "fresh seed: 0, for want of a repository"
    return f"fresh seed: {fresh_seed()}, from commit {commit()}"
