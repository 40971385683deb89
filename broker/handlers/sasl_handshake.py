"""SaslHandshake (17), versions 0-1: an honest refusal; this broker accepts only PLAINTEXT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers import permits
from broker.handlers.refusals import Refusal
from broker.handlers.served import Served
from broker.network.request import Answer, Request
from protocol.errors import ErrorCode
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.services import Services

API = Api(key=17, name="sasl_handshake", version_min=0, version_max=1, flexible_from=2)


def handle(_request: Request, _services: Services) -> Answer:
    """UNSUPPORTED_SASL_MECHANISM with an empty list of mechanisms."""
    return {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": ()}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and no mechanisms."""
    return {"error_code": refusal.error.code, "mechanisms": ()}


SERVED = Served(API, handle, refuse, permit=permits.everyone)
