"""The client's side of a log-in by any mechanism: which token to send, and what comes after an answer."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Self

from echoless.protocol.sasl.mechanism import Mechanism, SaslError
from echoless.protocol.sasl.oauthbearer import REFUSAL_READ, bearer_message
from echoless.protocol.sasl.plain import plain_token
from echoless.protocol.sasl.scram_client import ScramClient


class ClientExchange:
    """One log-in: send `token` and give the answer to `take`, until `token` is None."""

    def __init__(self, steps: Generator[bytes, bytes, None]) -> None:
        self._steps = steps
        self.token: bytes | None = next(self._steps)

    @classmethod
    def by_password(cls, mechanism: Mechanism, user: str, password: str) -> Self:
        """One by any mechanism but OAUTHBEARER."""
        return cls(_tokens(mechanism, user, password))

    @classmethod
    def by_bearer_token(cls, token: str, extensions: Mapping[str, str] | None = None) -> Self:
        """One by OAUTHBEARER."""
        return cls(_bearer(token, extensions))

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


def _bearer(token: str, extensions: Mapping[str, str] | None) -> Generator[bytes, bytes, None]:
    refusal = yield bearer_message(token, extensions=extensions)
    if refusal:
        yield REFUSAL_READ  # the server answers this with the failure
        raise SaslError("the server refuses the token, and goes on")
