"""Files that a newer version of Echoless has written: nothing is wrong with them, and nothing is to be removed."""

from __future__ import annotations


def is_newer(version: object, known: int) -> bool:
    """Whether a version, a number or its digits, is above the newest that this release reads."""
    text = str(version)
    return text.isascii() and text.isdigit() and int(text) > known


def newer_format(version: object, known: int) -> str:
    """The description of the problem, and the remedy."""
    return (
        f"was written by a newer version of Echoless (its format is {version}, this one reads up to {known}): "
        f"start that version again; nothing has to be removed"
    )
