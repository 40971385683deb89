"""DescribeCluster (60), versions 0-1: the cluster id, its controller and its brokers.

KIP-700; flexible from the start; authorised operations on request. v1 (KIP-919): the client says
whether it expects a broker (1) or a controller (2); there are no controller ports here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.cluster.addresses import client_addresses
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.authorized_operations import NOT_ASKED, cluster_operations
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

_BROKER_ENDPOINT: Final = 1
_CONTROLLER_ENDPOINT: Final = 2
_NO_BROKER: Final = -1


class DescribeClusterRequest(NamedTuple):
    include_cluster_authorized_operations: bool
    endpoint_type: int = _BROKER_ENDPOINT


def handle(request: Request, services: Services) -> Answer:
    """The cluster; MISMATCHED_ENDPOINT_TYPE or UNSUPPORTED_ENDPOINT_TYPE for other endpoints."""
    body = typed(DescribeClusterRequest, request.body)
    try:
        _check_endpoint_type(body.endpoint_type)
    except KafkaError as error:
        return _failure(error, services)
    addresses = client_addresses(services.cluster, request.peer)
    asked = body.include_cluster_authorized_operations
    return {
        **_cluster(services),
        "cluster_authorized_operations": cluster_operations(
            permits.rights_of(request, services), asked=asked
        ),
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "brokers": [
            {"broker_id": broker_id, "host": address.host, "port": address.port}
            for broker_id, address in addresses.items()
        ],
    }


def _failure(error: KafkaError, services: Services) -> dict[str, Any]:
    return {
        **_cluster(services),
        "cluster_authorized_operations": NOT_ASKED,
        "error_code": error.code,
        "error_message": error.message,
        "brokers": (),
    }


def _cluster(services: Services) -> dict[str, Any]:
    return {
        "endpoint_type": _BROKER_ENDPOINT,
        "cluster_id": services.cluster_id,
        "controller_id": services.cluster.controller_id,
    }


def _check_endpoint_type(endpoint_type: int) -> None:
    if endpoint_type == _CONTROLLER_ENDPOINT:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if endpoint_type != _BROKER_ENDPOINT:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
        )


def refuse(refusal: Refusal, services: Services) -> Answer:
    """The error, and no brokers; before a log-in nothing of the cluster either."""
    failure = _failure(refusal.error, services)
    if refusal.is_before_login:
        failure |= {"cluster_id": "", "controller_id": _NO_BROKER}
    return failure


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
