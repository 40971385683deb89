"""ApiVersions (18), versions 0-4: what this broker serves, as the dispatcher declares it.

v0-2: the list. v3 (KIP-511): flexible; the client names its software. v4: the feature `group.version` (KIP-584),
which says that the consumer protocol is served. A version above 4 is answered with version 0 and
UNSUPPORTED_VERSION, so that the client can retry with a lower one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker.handlers import permits
from broker.handlers.refusals import Refusal
from broker.handlers.served import Served
from broker.network.request import Answer, Request, Software
from protocol.api_versions import (
    ApiVersionsRequest,
    ApiVersionsRow,
    Feature,
    decode_api_versions_request,
    encode_api_versions_response,
)
from protocol.errors import ErrorCode
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.services import Services

API = Api(
    key=18,
    name="api_versions",
    version_min=0,
    version_max=4,
    flexible_from=3,
    read_request=decode_api_versions_request,
)

_FEATURES: Final = (Feature("group.version", 0, 1, 1),)
_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    """Answers with the APIs that the dispatcher serves."""

    def __init__(self, served: Iterable[Api]) -> None:
        self._rows = [
            ApiVersionsRow(
                api.key,
                api.version_min if api.listed_min is None else api.listed_min,
                api.version_max,
            )
            for api in sorted(served, key=lambda api: api.key)
        ]

    def handle(self, request: Request, _services: Services) -> Answer:
        """The list of APIs; INVALID_REQUEST for software names that Kafka rejects too."""
        body: ApiVersionsRequest = request.body
        is_valid = all(map(_SOFTWARE_NAME.fullmatch, body))
        if is_valid:
            request.peer.software = Software(request.header.client_id, *body)
        return self._answer(request, ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST)

    def refuse(self, refusal: Refusal, _services: Services) -> Answer:
        """The error, and the list of APIs: it tells the client which versions to use instead."""
        return self._answer(refusal.request, refusal.error.code)

    def _answer(self, request: Request, error_code: ErrorCode) -> bytes:
        version = request.version if API.serves(request.version) else 0
        return encode_api_versions_response(version, error_code, self._rows, _FEATURES)


def served_with(others: Iterable[Served]) -> Served:
    """This API, which lists itself and the others."""
    versions = ApiVersions([API, *(other.api for other in others)])
    return Served(API, versions.handle, versions.refuse, permit=permits.everyone)
