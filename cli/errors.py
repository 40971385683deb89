"""The one exception that ends a command."""

from __future__ import annotations


class CommandError(Exception):
    """The command cannot do what was requested. One line: what is wrong, and what to do."""
