"""Child processes that run a module of `echoless`, by the interpreter of this process.

A directory of the project under test may hold a module `signal` or a package `kio`: its working directory, what pytest
puts on the path, what `PYTHONPATH` names. So `-P` leaves the working directory out, and `module_path` names the places
of the standard library, of `echoless` and of installed packages before all others.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Final

_OWN_PLACE: Final = Path(__file__).parents[2]
"""The directory that `echoless` is imported from."""
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Names of the directories in which installed packages are, in any environment that is on the path."""


def module_command(module: str) -> list[str]:
    """The command that runs `module`, to be continued by its arguments."""
    return [sys.executable, "-P", "-m", module]


def module_path() -> str:
    """The child's `PYTHONPATH`: every directory of `sys.path`, those that hold what is installed first."""
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    places = [Path(one) for one in sys.path if one]
    installed = [one for one in places if one.name in _INSTALLED]
    library = [
        one for one in places if any(map(one.is_relative_to, standard)) and one not in installed
    ]
    return os.pathsep.join(dict.fromkeys(map(str, (*library, _OWN_PLACE, *installed, *places))))
