"""`sasl`: one token of a log-in, by the mechanism that the message names. The answer has the server's token.

Before a client has logged in it may send nothing but `hello` and `sasl`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from echoless.broker.authentication.session import LoginSession, LoginStage
from echoless.broker.network.request import ConnectionLogin, Peer
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.messages import Sasl
from echoless.protocol.sasl.mechanism import SaslError

if TYPE_CHECKING:
    from echoless.broker.services import Services

_BEFORE_LOGIN: Final = frozenset({"hello", "sasl"})


class RefusedLoginError(KafkaError):
    """The answer to a message after which the connection ends."""

    def __init__(self, session: LoginSession, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.session = session


def check_login(login: ConnectionLogin, message_type: str) -> None:
    """Raises `RefusedLoginError` for what a client may not send now; `CloseConnectionError` after its session."""
    assert isinstance(login, LoginSession)
    if message_type not in _BEFORE_LOGIN:
        login.check_expiry()
        raise RefusedLoginError(
            login, ErrorCode.ILLEGAL_SASL_STATE, f"{message_type} needs a log-in (sasl)"
        )


def handle(
    message: Sasl, peer: Peer, _services: Services
) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
    """The server's token, and whether the log-in is done.

    Raises `KafkaError`; one of the log-in itself ends the connection.
    """
    session = peer.login
    if not isinstance(session, LoginSession) or not session.may_begin:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "there is nothing to log in for now")
    if session.stage is not LoginStage.TOKENS:
        try:
            session.begin(message.mechanism, LoginStage.TOKENS)
        except KafkaError as error:
            raise RefusedLoginError(session, error.code, error.message) from error
    return session.answer(message.data, lambda token: _fields(session, token), _failed)


def _fields(session: LoginSession, token: bytes) -> Mapping[str, Any]:
    is_done = session.stage is LoginStage.DONE
    lifetime_ms = session.lifetime_ms if is_done else 0
    return {"data": token, "is_complete": is_done, "session_lifetime_ms": lifetime_ms}


def _failed(error: SaslError) -> NoReturn:
    raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
