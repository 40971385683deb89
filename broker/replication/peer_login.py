"""Logs in to the native port of another broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from echoless.broker.config.loading import Config
from echoless.broker.network.turns import in_thread
from echoless.protocol.native.answers import Answer
from echoless.protocol.native.replication import read_error
from echoless.protocol.sasl.client_exchange import ClientExchange
from echoless.protocol.sasl.mechanism import Mechanism, SaslError

Send = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


class PeerLogin(NamedTuple):
    """A user and its password."""

    mechanism: Mechanism
    user: str
    password: str

    @classmethod
    def of(cls, config: Config) -> PeerLogin:
        """The login that the configuration names."""
        return cls(
            config.sasl_mechanism_inter_broker_protocol,
            config.sasl_inter_broker_username or "",
            config.sasl_inter_broker_password or "",
        )

    def __repr__(self) -> str:
        """Leaves the password out."""
        return f"PeerLogin({self.mechanism}, {self.user!r})"

    async def log_in(self, send: Send) -> float:
        """Sends the tokens; returns how many seconds the session lasts, 0 if forever.

        Raises `SaslError`, and what `send` does.
        """
        exchange = ClientExchange.by_password(self.mechanism, self.user, self.password)
        while True:
            assert exchange.token is not None
            answer = await self._exchanged(send, exchange.token)
            await in_thread(partial(exchange.take, answer.binary("data")))
            if exchange.token is None:
                return _lifetime_s(answer)

    async def _exchanged(self, send: Send, token: bytes) -> Answer:
        answer = await send({"type": "sasl", "mechanism": self.mechanism, "data": token})
        error = read_error(answer)
        if error is not None:
            raise SaslError(error.message)
        return Answer("the log-in", answer)


def _lifetime_s(answer: Answer) -> float:
    return answer.integer("session_lifetime_ms") / 1000
