"""SaslHandshake (17), versions 0-1: begins a log-in.

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
    """ILLEGAL_SASL_STATE: there is nothing to log in for, or not now."""
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": ()}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and no mechanisms."""
    return {"error_code": refusal.error.code, "mechanisms": ()}


SERVED = Served(API, handle, refuse, permit=permits.everyone)
