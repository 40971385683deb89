"""SaslAuthenticate (36), versions 0-2: one token of a log-in. v1: session lifetime (KIP-368). v2: flexible.

On a listener with SASL the log-in answers it before requests come here (`sasl_gate.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)


def handle(_request: Request, _services: Services) -> Answer:
    """ILLEGAL_SASL_STATE: there is nothing to log in for, or it has been done."""
    return _answer(
        ErrorCode.ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
    )


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and no token."""
    return _answer(refusal.error.code, refusal.error.message or None)


def _answer(code: ErrorCode, message: str | None) -> dict[str, object]:
    return {
        "error_code": code,
        "error_message": message,
        "auth_bytes": b"",
        "session_lifetime_ms": 0,
    }


SERVED = Served(API, handle, refuse, permit=permits.everyone)
