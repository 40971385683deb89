"""Earlier releases, each unpacked from its commit into the cache; they run with this environment's packages.

The commits are those with which the releases were finished; `python -m tests.toolchain` unpacks them.
"""

from __future__ import annotations

import enum
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support.tool import Tool, ToolError

_REPOSITORY: Final = Path(__file__).parents[2]
_CACHE: Final = _REPOSITORY / ".cache"
_UNPACK_TIMEOUT_S: Final = 60


class Release(enum.Enum):
    """A release by its number, with its commit."""

    V0_1 = ("0.1.0", "e4202301")
    V0_2 = ("0.2.0", "c7bfd248")

    @property
    def number(self) -> str:
        return self.value[0]

    @property
    def tree(self) -> Path:
        """The directory that its broker is imported from."""
        return _CACHE / f"release-{self.number}-{self.value[1]}"

    @property
    def tool_name(self) -> str:
        return f"release-{self.number}"

    def unpack(self) -> None:
        """Raises `ToolError`, where the history does not reach so far back."""
        aside = self.tree.with_suffix(".part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        archive = ["git", "-C", str(_REPOSITORY), "archive", self.value[1]]
        try:
            found = subprocess.run(
                archive, check=True, capture_output=True, timeout=_UNPACK_TIMEOUT_S
            )
            subprocess.run(
                ["tar", "-x", "-C", str(aside)],
                check=True,
                input=found.stdout,
                timeout=_UNPACK_TIMEOUT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ToolError(
                f"`{' '.join(archive)}` failed; a whole clone has that commit: {error}"
            ) from error
        aside.rename(self.tree)


TOOLS: Final = [
    Tool(
        name=release.tool_name,
        used_by=f"the rolling upgrade from {release.number}",
        is_present=release.tree.is_dir,
        prepare=release.unpack,
    )
    for release in Release
]
