"""The handlers that are imported, by the key of their API.

A producer's first requests find theirs; each other API's is imported when it is first asked for. That takes up to a few
ms, and all of them would be a tenth of a start, so the dispatcher has `load` run in a thread. Called by the
dispatcher, and by fault rules, which read requests before it does.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from echoless.broker.handlers import api_versions, init_producer_id, metadata, produce
from echoless.broker.handlers.served import Served
from echoless.protocol.registry import Api

LOADED: Final[dict[int, Served]] = {
    module.API.key: module.SERVED for module in (api_versions, metadata, init_producer_id, produce)
}


def load(api: Api) -> Served:
    """The handler of an API; imports it, if that is still to be done."""
    served = LOADED.get(api.key)
    if served is None:
        found: Served = import_module(f"echoless.broker.handlers.{api.name}").SERVED
        served = LOADED.setdefault(api.key, found)
    return served


def load_for(api: Api, version: int) -> Served:
    """Imports the handler of an API, and what reads its requests of this version."""
    api.prepare_decoding(version)
    return load(api)
