"""Names that clients choose, as log lines show them."""

from __future__ import annotations

from typing import Final

_CHARACTERS_MAX: Final = 120
_END: Final = 40
"""The end of a member id is what tells members of one client id apart."""


def shown(name: str | None) -> str:
    """The name in quotes on one line; the middle of a long one is left out."""
    if name is not None and len(name) > _CHARACTERS_MAX:
        name = f"{name[: _CHARACTERS_MAX - _END]}...{name[-_END:]}"
    return repr(name)
