"""Why a member cannot go on."""

from __future__ import annotations

from typing import Any

from echoless.client.errors import ProducerError


class GroupError(ProducerError):
    """The group cannot be used by this member; the message says why. Joining again does not help.

    `error_code` is the broker's (0 if there was none).
    """

    def __init__(self, message: str, error_code: int = 0) -> None:
        super().__init__(message)
        self.error_code = error_code


class GenerationOverError(Exception):
    """The member's generation has ended: what it was assigned may belong to another member."""


def group_error(group: str, what: str, code: Any) -> GroupError:
    """The error for a code of kio's that joining again does not cure."""
    return GroupError(f"group {group}: {what}: {code.name.upper()}", code.value)
