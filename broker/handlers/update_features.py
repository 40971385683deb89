"""UpdateFeatures (57), versions 0-1 (KIP-584): raises the level of `echoless.version` that the cluster is at.

Every broker serves it: the tree orders changes. A level is raised to what all registered brokers support, and never
lowered, since what has been stored since may be of the higher level. v1: the kind of change, and a dry run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from echoless.broker.config.feature_levels import FEATURE
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.metadata.features import least_supported
from echoless.broker.network.request import Answer, Request
from echoless.broker.tree.node_tree import CoordinationError
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

_FEATURES_MAX: Final = 100
"""Features that one request may name: there is one."""


async def handle(request: Request, services: Services) -> Answer:
    """A row for each feature that is named."""
    body = request.body
    updates = body.feature_updates
    is_short = 0 < len(updates) <= _FEATURES_MAX
    if not is_short or len({one.feature for one in updates}) < len(updates):
        message = f"between 1 and {_FEATURES_MAX} features are updated by one request, each once"
        return _answer(KafkaError(ErrorCode.INVALID_REQUEST, message))
    is_made = not (request.version >= 1 and body.validate_only)
    rows = [await _row(services, one, is_made=is_made) for one in updates]
    return {"error_code": ErrorCode.NONE, "error_message": None, "results": rows}


async def _row(services: Services, update: Any, *, is_made: bool) -> dict[str, Any]:
    code, message = ErrorCode.NONE, None
    try:
        await _update(services, update.feature, update.max_version_level, is_made=is_made)
    except KafkaError as error:
        code, message = error.code, error.message
    except CoordinationError as error:
        code, message = ErrorCode.FEATURE_UPDATE_FAILED, str(error)
    return {"feature": update.feature, "error_code": code, "error_message": message}


async def _update(services: Services, feature: str, level: int, *, is_made: bool) -> None:
    """Raises `KafkaError` INVALID_UPDATE_VERSION, `CoordinationError`."""
    if feature != FEATURE:
        raise _refused(f"{feature} is not updated: {FEATURE} is the one feature that is")
    features = services.features
    await features.refresh()
    if level < features.level:
        raise _refused(
            f"{FEATURE} is at level {features.level} and is not lowered: what has been stored since may need it"
        )
    if level == features.level:
        return
    brokers = services.cluster.brokers
    supported = least_supported(brokers.values())
    if level > supported:
        older = [str(one) for one, info in brokers.items() if least_supported([info]) < level]
        raise _refused(
            f"level {level} of {FEATURE} is not supported by these brokers: {', '.join(older)}; upgrade them first"
        )
    if is_made:
        await features.raise_to(level)


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _answer(error: KafkaError) -> dict[str, Any]:
    return {"error_code": error.code, "error_message": error.message, "results": ()}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, once for the whole request."""
    return _answer(refusal.error)


SERVED = Served(API, handle, refuse, permit=permits.cluster(AclOperation.ALTER))
