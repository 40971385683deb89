"""The log-in of one connection, on either port: its stage, its exchange, and when it has to be renewed.

Tokens go through `take`; the ports' own files read them out of requests, and frame the answers
(`broker/handlers/sasl_gate.py`, `broker/native/sasl.py`). While a log-in takes time, and while a failed one is held
back, nothing more is read from the connection.

Invariant: The principal of a connection changes when its log-in succeeds, and never from one user to another.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable
from copy import copy
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from echoless.broker.authentication.credentials import Credentials
from echoless.broker.authentication.exchanges import PlainExchange, SaslExchange, ScramExchange
from echoless.broker.config.loading import Config, ConfigError
from echoless.broker.config.values import INT32_MAX
from echoless.broker.limited_log import LimitedLog
from echoless.broker.metrics import Metrics
from echoless.broker.network.fair_workers import FairWorkers
from echoless.broker.network.request import CloseConnectionError
from echoless.broker.tree.node_tree import NodeTree
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.sasl.mechanism import Mechanism, SaslError

if TYPE_CHECKING:
    from echoless.broker.authentication.bearer import TokenCheck
    from echoless.broker.authentication.token_keys import TokenKeys
    from echoless.broker.network.connection import Connection

limited: Final = LimitedLog(logging.getLogger(__name__))
Result = TypeVar("Result")

AGAIN_INTERVAL_S: Final = 1.0
"""The least time between two log-ins of a client."""
CHECKS_MAX: Final = 4
"""Passwords or tokens that are checked at a time: a password takes milliseconds of a processor.
Addresses take turns."""
LIFETIME_MS_MAX: Final = INT32_MAX
"""The longest time a session lasts, whatever end a token names."""


class LoginStage(enum.Enum):
    """The stages of a connection's log-in."""

    START = enum.auto()
    VERSIONS = enum.auto()
    """ApiVersions was answered."""
    TOKENS = enum.auto()
    """A mechanism was agreed on; tokens come in requests."""
    RAW_TOKENS = enum.auto()
    """A mechanism was agreed on; tokens come without requests, as before KIP-152."""
    DONE = enum.auto()


class Logins:
    """The parts that the log-ins of one broker share."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        """Raises `ConfigError` if OAUTHBEARER is enabled and cannot be served."""
        self.config = config
        self.metrics = metrics
        self.mechanisms = tuple(Mechanism(name) for name in config.sasl_enabled_mechanisms)
        self.credentials = Credentials()
        self._checks = FairWorkers("log-ins", CHECKS_MAX)
        self._keys: TokenKeys | None = None
        self._tokens: TokenCheck | None = None
        if Mechanism.OAUTHBEARER in self.mechanisms:
            self._tokens = self._new_token_check()

    def _new_token_check(self) -> TokenCheck:
        try:
            from echoless.broker.authentication.bearer import SignedTokens, UnsecuredTokens
            from echoless.broker.authentication.token_keys import TokenKeys
        except ImportError as error:
            raise ConfigError(
                f"sasl_enabled_mechanisms: {Mechanism.OAUTHBEARER} needs the extra oauth "
                f"(pip install 'echoless[oauth]'): {error}"
            ) from error
        if self.config.oauthbearer_unsecured:
            return UnsecuredTokens(self.config)
        self._keys = TokenKeys(self.config)
        return SignedTokens(self.config, self._keys)

    async def start(self, tree: NodeTree) -> None:
        """Raises `CoordinationError`, `OutOfThreadsError`."""
        if any(one.sends_secret for one in self.mechanisms):
            self._checks.start()
        if self._keys is not None:
            await self._keys.start()
        await self.credentials.start(tree)

    async def close(self) -> None:
        """Stops following the users and the keys."""
        await self.credentials.close()
        if self._keys is not None:
            await self._keys.close()
        self._checks.stop()

    def new_exchange(self, mechanism: Mechanism, host: str) -> SaslExchange:
        """A log-in that begins, of a client from this host."""
        checks = partial(self._checks.run, host)
        if mechanism is Mechanism.PLAIN:
            return PlainExchange(self.credentials, checks)
        if mechanism is Mechanism.OAUTHBEARER:
            from echoless.broker.authentication.bearer import BearerExchange

            assert self._tokens is not None
            return BearerExchange(self._tokens, checks, host)
        return ScramExchange(mechanism, self.credentials)

    def of_listener(self, config: Config) -> Logins:
        """The same users, keys and checks, under the configuration of one listener."""
        one = copy(self)
        one.config = config
        one.mechanisms = tuple(Mechanism(name) for name in config.sasl_enabled_mechanisms)
        return one

    def require(self, connection: Connection) -> None:
        """Has the client of a new connection log in first."""
        session = LoginSession(self, connection)
        session.begin_deadline()
        connection.require_login(session, self.config.sasl_server_max_receive_size)


class LoginSession:
    """The log-in of one connection."""

    __slots__ = (
        "_again_at",
        "_connection",
        "_deadline",
        "_ends_at",
        "_exchange",
        "_logins",
        "_mechanism",
        "_next_mechanism",
        "lifetime_ms",
        "stage",
    )

    def __init__(self, logins: Logins, connection: Connection) -> None:
        self._logins = logins
        self._connection = connection
        self.stage = LoginStage.START
        self._mechanism: Mechanism | None = None
        """The mechanism the client logged in with."""
        self._next_mechanism = Mechanism.PLAIN
        """The mechanism it is logging in with."""
        self._exchange: SaslExchange | None = None
        self.lifetime_ms = 0
        """The time the client may go on after its log-in; 0: forever."""
        self._ends_at: float | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._again_at = 0.0

    # --- how long a log-in may take ---

    def begin_deadline(self) -> None:
        """Ends the connection unless its client logs in in time."""
        timeout_s = self._logins.config.connection_login_timeout_ms / 1000
        self._deadline = asyncio.get_running_loop().call_later(timeout_s, self._give_up)

    def connection_lost(self) -> None:
        self._end_deadline()

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        self._logins.metrics.logins_failed_total += 1
        timeout_ms = self._logins.config.connection_login_timeout_ms
        self._connection.close(
            f"it has not logged in within {timeout_ms} ms (connection_login_timeout_ms)"
        )

    # --- what is decided about requests ---

    @property
    def is_open(self) -> bool:
        """Whether the client has logged in, and its session has not ended; it may be renewing it."""
        return self._mechanism is not None and (
            self._ends_at is None or monotonic() < self._ends_at
        )

    @property
    def has_expired(self) -> bool:
        """Whether the client should have logged in again."""
        return self._mechanism is not None and not self.is_open

    def expire(self) -> None:
        """Ends the session now, as if its time were over; the client may log in again at once."""
        if self.is_open:
            self._ends_at = self._again_at = monotonic()

    def check_expiry(self) -> None:
        """Raises `CloseConnectionError`, counted, if the client should have logged in again."""
        if self.has_expired:
            self._logins.metrics.sessions_expired_total += 1
            raise CloseConnectionError("its session has ended, and it has not logged in again")

    @property
    def may_begin(self) -> bool:
        """Whether a log-in may begin now: the first, or one that renews a session which has an end."""
        if self.stage is not LoginStage.DONE:
            return True
        return self._ends_at is not None and monotonic() >= self._again_at

    # --- an exchange ---

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The enabled mechanisms."""
        return self._logins.mechanisms

    def begin(self, mechanism: str, stage: LoginStage) -> None:
        """Begins an exchange. Raises `KafkaError` UNSUPPORTED_SASL_MECHANISM."""
        if mechanism not in self.mechanisms:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"{mechanism!r} is not enabled, only {', '.join(self.mechanisms)}",
            )
        self._next_mechanism = Mechanism(mechanism)
        self._exchange = None
        self.stage = stage

    def answer(
        self,
        token: bytes,
        success: Callable[[bytes], Result],
        failure: Callable[[SaslError], Result],
    ) -> Result | Awaitable[Result]:
        """The answer to a token, made by `success` or, after a delay and before the end, by `failure`.

        Raises `CloseConnectionError` for a log-in again by another mechanism.
        """
        try:
            outcome = self._take(token)
        except SaslError as error:
            self._connection.mute()
            return self._fail(error, failure)
        if isinstance(outcome, bytes):
            return success(outcome)
        self._connection.mute()
        return self._answer_later(outcome, success, failure)

    def end_with(self, answer: Awaitable[Result], reason: str) -> Awaitable[Result]:
        """Gives the answer after those in flight, and then closes the connection."""
        self._connection.mute()
        return self._end_with(answer, reason)

    def _take(self, token: bytes) -> bytes | Awaitable[bytes]:
        """The answer to a token; later, if it has to be checked. The log-in may be done then."""
        mechanism, exchange = self._next_mechanism, self._exchange
        if self._mechanism not in {None, mechanism}:
            raise CloseConnectionError(f"it logs in again by {mechanism}, not {self._mechanism}")
        if exchange is None:
            exchange = self._logins.new_exchange(mechanism, self._connection.host)
            self._exchange = exchange
        outcome = exchange.take(token)
        if not isinstance(outcome, bytes):
            return self._take_later(exchange, outcome)
        if exchange.is_complete:
            self._complete(exchange)
        return outcome

    async def _take_later(self, exchange: SaslExchange, outcome: Awaitable[bytes]) -> bytes:
        answer = await outcome
        if exchange.is_complete:
            self._complete(exchange)
        return answer

    def _complete(self, exchange: SaslExchange) -> None:
        principal, known = f"User:{exchange.user}", self._connection.principal
        if self._mechanism is not None and principal != known:
            raise SaslError(
                f"Cannot change principals during re-authentication from {known}: {principal}"
            )
        now = monotonic()
        self._mechanism, self._exchange = self._next_mechanism, None
        self._again_at = now + AGAIN_INTERVAL_S
        self.lifetime_ms = self._lifetime_ms(exchange.lifetime_s)
        self._ends_at = now + self.lifetime_ms / 1000 if self.lifetime_ms else None
        self.stage = LoginStage.DONE
        self._end_deadline()
        self._logins.metrics.logins_total += 1
        self._connection.admit(principal, self._logins.config.request_size_max)

    def _lifetime_ms(self, shown_s: float | None) -> int:
        """The shorter of what the broker allows and how long what the client has shown is valid."""
        allowed_ms = self._logins.config.connections_max_reauth_ms
        if shown_s is None:
            return allowed_ms
        return max(int(min(shown_s * 1000, allowed_ms or LIFETIME_MS_MAX)), 1)

    async def _answer_later(
        self,
        outcome: Awaitable[bytes],
        success: Callable[[bytes], Result],
        failure: Callable[[SaslError], Result],
    ) -> Result:
        try:
            answer = await outcome
        except SaslError as error:
            return await self._fail(error, failure)
        asyncio.get_running_loop().call_soon(self._connection.unmute)
        return success(answer)

    async def _fail(self, error: SaslError, failure: Callable[[SaslError], Result]) -> Result:
        self._logins.metrics.logins_failed_total += 1
        await asyncio.sleep(self._logins.config.connection_failed_authentication_delay_ms / 1000)
        reason = f"its log-in by {self._next_mechanism} has failed: {error}"
        if self._exchange is not None and self._exchange.user:
            reason += f" (user {self._exchange.user!r})"
        self._connection.close_after_answers(reason)
        return failure(error)

    async def _end_with(self, answer: Awaitable[Result], reason: str) -> Result:
        result = await answer
        self._connection.close_after_answers(reason)
        return result
