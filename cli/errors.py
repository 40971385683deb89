"""The one exception that a command ends with."""

from __future__ import annotations


class CommandError(Exception):
    """The command cannot do what it was asked to. One line: what is wrong, and what to do."""
