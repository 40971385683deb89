"""A refusal by the admin port: a status and one sentence, which become the answer's JSON.

aiohttp's own exceptions encode their text as UTF-8, and fail if it repeats something the client sent
that was not UTF-8. JSON can carry anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus


class RefusalError(Exception):
    """The error that handlers raise, and that the application answers with."""

    def __init__(
        self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers
