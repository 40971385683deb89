"""The client's side of a log-in by any mechanism: which token to send, and what comes after an answer."""

from __future__ import annotations

from collections.abc import Generator

from protocol.sasl.mechanism import Mechanism
from protocol.sasl.plain import plain_token
from protocol.sasl.scram_client import ScramClient


class ClientExchange:
    """One log-in: send `token` and give the answer to `take`, until `token` is None."""

    def __init__(self, mechanism: Mechanism, user: str, password: str) -> None:
        self._steps = _tokens(mechanism, user, password)
        self.token: bytes | None = next(self._steps)

    def take(self, answer: bytes) -> None:
        """Takes milliseconds with SCRAM. Raises `SaslError` unless the server proves what it has to."""
        try:
            self.token = self._steps.send(answer)
        except StopIteration:
            self.token = None


def _tokens(mechanism: Mechanism, user: str, password: str) -> Generator[bytes, bytes, None]:
    if mechanism is Mechanism.PLAIN:
        yield plain_token(user, password)
        return
    exchange = ScramClient(mechanism, user, password)
    answer = yield exchange.first()
    answer = yield exchange.final(answer)
    exchange.check(answer)
