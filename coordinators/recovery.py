"""The remedy after a coordinator has raised an exception, which is a bug: the state of one name alone is dropped."""

from __future__ import annotations

from typing import Any, NamedTuple


class Recovery(NamedTuple):
    """A name, a group for instance, that is loaded again."""

    name: str
    """No request about it that is still to be answered will be: the shell refuses them."""
    effects: list[Any]
