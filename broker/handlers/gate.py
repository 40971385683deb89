"""The gate that every request of the Kafka port passes between decoding and handling.

Here the request is counted, in general and against quotas (`metered.py`), if there are any. If the broker has an
authorizer, what the client may not do is answered with the error, and the rest of the request is processed. What each
API needs is said beside it (`handlers/permits.py`). The native port has its own gate (`native/exchange.py`), with the
same authorizer and quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless.broker.handlers.refusals import Refusal
from echoless.broker.network.denial import everything
from echoless.broker.network.request import Outcome, Request

if TYPE_CHECKING:
    from echoless.broker.handlers.served import Served
    from echoless.broker.services import Services


def admit(served: Served, request: Request, services: Services) -> Outcome:
    """Handles the request, as far as it is permitted."""
    services.metrics.requests[served.api.name] += 1
    if services.quotas.limits is not None:
        from echoless.broker.handlers.metered import metered

        return metered(served, request, services, _permitted)
    if services.access is not None:
        return _permitted(served, request, services)
    return served.handle(request, services)


def _permitted(served: Served, request: Request, services: Services) -> Outcome:
    access = services.access
    if access is not None:
        denial = served.permit(request, access.rights(request.peer), services)
        if denial is not None:
            refusal = Refusal(request=request, error=denial.error, is_refused=denial.is_refused)
            if denial.is_refused is everything:
                return served.refuse_whole(refusal, services)
            return served.refuse_parts(refusal, services, served.handle)
    return served.handle(request, services)
