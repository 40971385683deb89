"""A Kafka listener with SASL: nothing but a log-in passes until it is done.

Takes the place of the dispatcher there, so that other listeners pay nothing. Before the log-in, only the bodies
of ApiVersions, SaslHandshake and SaslAuthenticate are read, by hand, and those of small requests that are refused
after a handshake; no frame is large. The states are those of Kafka's `SaslServerAuthenticator`.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable
from functools import partial
from typing import Final

from echoless.broker.authentication.session import LoginSession, LoginStage
from echoless.broker.handlers import api_versions, sasl_authenticate, sasl_handshake
from echoless.broker.handlers.dispatch import KafkaDispatcher
from echoless.broker.network.answers import Buffers
from echoless.broker.network.reading import Dispatched
from echoless.broker.network.request import CloseConnectionError, OfNoApi, Peer
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.framing import Frame, frame_length
from echoless.protocol.headers import (
    NO_TAGS,
    RequestHeader,
    read_request_header,
    response_prefix,
    skip_tagged_fields,
    write_unsigned_varint,
)
from echoless.protocol.request_fields import compact_size, field_bytes, string
from echoless.protocol.sasl.mechanism import SaslError

_REASON_LENGTH_MAX: Final = 1000
"""The length of a refusal's text: a string of the older versions is 32 KiB at most."""
REFUSED_BYTES_MAX: Final = 4096
"""The size of a request in the middle of a log-in that is answered: it is decoded on the event loop."""
_KEY: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_LIFETIME: Final = struct.Struct(">q")
_LIFETIME_SINCE: Final = 1


class SaslGate:
    """Answers the frames of all connections of a listener with SASL."""

    def __init__(self, inner: KafkaDispatcher) -> None:
        self._inner = inner

    def __call__(self, frame: Frame, peer: Peer) -> Dispatched:
        """Raises `DecodeError` or `CloseConnectionError` if the connection has to be closed."""
        session = peer.login
        assert isinstance(session, LoginSession)
        if session.stage is not LoginStage.DONE:
            return self._log_in(frame, peer, session)
        if frame[: _KEY.size] == _HANDSHAKE and session.may_begin:
            return _shake_hands(frame, session)
        if frame[: _KEY.size] != _HANDSHAKE:
            session.check_expiry()
        return self._inner(frame, peer)

    def _log_in(self, frame: Frame, peer: Peer, session: LoginSession) -> Dispatched:
        stage = session.stage
        if stage is LoginStage.RAW_TOKENS:
            answer = session.answer(bytes(frame), _raw, _no_answer)
            return OfNoApi(answer if isinstance(answer, Awaitable) else _soon(answer))
        header = read_request_header(frame)
        key = header.api_key
        if stage is LoginStage.TOKENS:
            if key == sasl_authenticate.API.key:
                return _authenticate(frame, header, session)
            if len(frame) > REFUSED_BYTES_MAX:
                raise CloseConnectionError(
                    f"API key {key} in the middle of a log-in, with {len(frame)} bytes"
                )
            error = KafkaError(ErrorCode.ILLEGAL_SASL_STATE)
            reason = f"API key {key} in the middle of a log-in"
            return OfNoApi(session.end_with(self._inner.refused(frame, peer, error), reason))
        if key == sasl_handshake.API.key:
            return _shake_hands(frame, session)
        if key == api_versions.API.key and stage is LoginStage.START:
            if api_versions.API.serves(header.api_version):
                session.stage = LoginStage.VERSIONS
            return self._inner(frame, peer)
        raise CloseConnectionError(f"API key {key} before a log-in, which this listener asks for")


_HANDSHAKE: Final = _KEY.pack(sasl_handshake.API.key)


def _shake_hands(frame: Frame, session: LoginSession) -> Dispatched:
    header = read_request_header(frame)
    if not sasl_handshake.API.serves(header.api_version):
        raise CloseConnectionError(f"sasl_handshake version {header.api_version} is not served")
    try:
        mechanism, _ = string(frame, header.body_position, flexible=False)
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError("a SaslHandshake names no mechanism") from error
    answer = partial(_handshake_answer, header, session)
    try:
        session.begin(mechanism, LoginStage.TOKENS if header.api_version else LoginStage.RAW_TOKENS)
    except KafkaError as error:
        return session.end_with(_soon(answer(error.code)), str(error))
    return answer(ErrorCode.NONE)


def _handshake_answer(header: RequestHeader, session: LoginSession, code: ErrorCode) -> Buffers:
    mechanisms = b"".join(map(_short, session.mechanisms))
    body = struct.pack(">hi", code, len(session.mechanisms)) + mechanisms
    return (response_prefix(header.correlation_id, len(body), flexible=False) + body,)


def _authenticate(frame: Frame, header: RequestHeader, session: LoginSession) -> Dispatched:
    if not sasl_authenticate.API.serves(header.api_version):
        raise CloseConnectionError(f"sasl_authenticate version {header.api_version} is not served")
    token = _token(frame, header)
    return session.answer(
        token,
        lambda answer: _authenticate_answer(header, session, answer),
        lambda error: _authenticate_answer(header, session, b"", error),
    )


def _token(frame: Frame, header: RequestHeader) -> bytes:
    position = header.body_position
    try:
        if sasl_authenticate.API.is_flexible(header.api_version):
            size, position = compact_size(frame, skip_tagged_fields(frame, position))
        else:
            (size,) = _INT32.unpack_from(frame, position)
            position += _INT32.size
        return bytes(field_bytes(frame, position, size))
    except (struct.error, IndexError) as error:
        raise DecodeError("a SaslAuthenticate has no whole token") from error


def _authenticate_answer(
    header: RequestHeader, session: LoginSession, token: bytes, error: SaslError | None = None
) -> Buffers:
    flexible = sasl_authenticate.API.is_flexible(header.api_version)
    code = ErrorCode.NONE if error is None else ErrorCode.SASL_AUTHENTICATION_FAILED
    body = struct.pack(">h", code)
    text = str(error)[:_REASON_LENGTH_MAX]  # it may name what the client has sent
    if flexible:
        body += b"\0" if error is None else _compact(text.encode())
        body += _compact(token)
    else:
        body += struct.pack(">h", -1) if error is None else _short(text)
        body += _INT32.pack(len(token)) + token
    if header.api_version >= _LIFETIME_SINCE:
        body += _LIFETIME.pack(session.lifetime_ms if session.stage is LoginStage.DONE else 0)
    body += NO_TAGS * flexible
    return (response_prefix(header.correlation_id, len(body), flexible=flexible) + body,)


def _short(text: str) -> bytes:
    data = text.encode()
    return _KEY.pack(len(data)) + data


def _compact(data: bytes) -> bytes:
    return write_unsigned_varint(len(data) + 1) + data


def _raw(token: bytes) -> Buffers | None:
    return (frame_length(len(token)) + token,)


def _no_answer(_error: SaslError) -> Buffers | None:
    return None


async def _soon(answer: Buffers | None) -> Buffers | None:
    return answer
