"""What the admin port will not do: a status and one sentence, which become the answer's JSON.

aiohttp's own exceptions encode their text as UTF-8, and fail where it repeats what the client sent
and that was none. JSON can carry anything.
"""

from __future__ import annotations

from http import HTTPStatus


class RefusalError(Exception):
    """Raised by handlers; the application answers with it."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
