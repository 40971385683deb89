"""ApiVersions (18), versions 0-4: what this broker serves, as declared in `apis.py`.

v0-2: the list. v3 (KIP-511): flexible; the client names its software. v4: the features (KIP-584): `echoless.version`
(`broker/config/feature_levels.py`), and `group.version`, which says that the consumer protocol is served. A version above 4 is answered with version 0 and
UNSUPPORTED_VERSION, so that the client can retry with a lower one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import APIS, declared
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request, Software
from echoless.protocol.api_versions import (
    ApiVersionsRequest,
    ApiVersionsRow,
    encode_api_versions_response,
)
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


_INIT_PRODUCER_ID: Final = 22
_ROWS: Final = [
    ApiVersionsRow(
        api.key,
        api.version_min if api.listed_min is None else api.listed_min,
        api.version_max,
    )
    for api in sorted(APIS, key=lambda api: api.key)
]
_ROWS_WITHOUT_PREVIEW: Final = [
    row._replace(version_max=row.version_max - 1) if row.api_key == _INIT_PRODUCER_ID else row
    for row in _ROWS
]
"""The newest version of InitProducerId is for two-phase commit (KIP-939) alone."""


def handle(request: Request, services: Services) -> Answer:
    """The list of APIs; INVALID_REQUEST for software names that Kafka rejects too."""
    body: ApiVersionsRequest = request.body
    is_valid = all(map(_SOFTWARE_NAME.fullmatch, body))
    if is_valid:
        request.peer.software = Software(request.client_id, *body)
    code = ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST
    return _answer(request, code, services)


def refuse(refusal: Refusal, services: Services) -> Answer:
    """The error, and the list of APIs: it tells the client which versions to use instead."""
    return _answer(refusal.request, refusal.error.code, services)


def _answer(request: Request, error_code: ErrorCode, services: Services) -> bytes:
    features = services.features
    has_preview = services.config.transaction_two_phase_commit_enable
    rows = _ROWS if has_preview else _ROWS_WITHOUT_PREVIEW
    version = request.version if API.serves(request.version) else 0
    return encode_api_versions_response(version, error_code, rows, features.rows(), features.epoch)


SERVED = Served(API, handle, refuse, permit=permits.everyone)
