"""The requests of both ports, and what each says about itself, for checking rules.

The APIs of the Kafka port say it themselves (`Served.names`).
"""

from __future__ import annotations

from typing import Final

from echoless.broker.faults.fields import RuleError, meant
from echoless.broker.faults.groups_named import NAMING_GROUPS
from echoless.broker.faults.match import BATCH_FIELDS, Match
from echoless.broker.faults.transactions_named import (
    NAMING_IDS,
    NAMING_PRODUCERS,
    NAMING_RESULTS,
)
from echoless.broker.handlers.apis import API_BY_NAME
from echoless.broker.handlers.loaded import load
from echoless.broker.handlers.served import Names

BATCH_API: Final = "produce"

_NATIVE_NAMES: Final = {
    "producer_state": Names.PARTITIONS,
    "lease_pid": Names.PARTITIONS,
    "replica_fetch": Names.PARTITIONS,
    "replica_wake": Names.NOTHING,
    "replica_snapshot": Names.PARTITIONS,
    "await_topic": Names.TOPICS,
    "note_tree": Names.NOTHING,
    "write_markers": Names.PARTITIONS,
    "find_transactions": Names.NOTHING,
    "add_or_verify": Names.PARTITIONS,
    "admin_read": Names.NOTHING,
    "hello": Names.NOTHING,
    "sasl": Names.NOTHING,
}
"""Names in messages that only the native port has; others are those of a Kafka API."""
APIS: Final = (*API_BY_NAME, *(name for name in _NATIVE_NAMES if name not in API_BY_NAME))

ERROR_APIS: Final = tuple(
    name for name in APIS if name not in {"hello", "await_topic", "note_tree", "admin_read"}
)
"""APIs that can be answered with an `error`."""

NEED_NO_RIGHT: Final = frozenset(
    {"api_versions", "sasl_handshake", "sasl_authenticate", "hello", "sasl"}
)
"""Requests that every client may send, so that no right can be denied to them."""
ABOUT_ACLS: Final = frozenset({"describe_acls", "create_acls", "delete_acls"})
"""Requests that a broker without an authorizer refuses anyway."""

BETWEEN_BROKERS: Final = frozenset(
    {
        "replica_fetch",
        "replica_wake",
        "replica_snapshot",
        "await_topic",
        "note_tree",
        "write_markers",
        "find_transactions",
        "add_or_verify",
        "admin_read",
    }
)
"""Messages that only a rule naming them, a freeze or a cut link affects."""


def _names(api: str) -> Names:
    known = _NATIVE_NAMES.get(api)
    return load(API_BY_NAME[api]).names if known is None else known


_NAMED_BY: Final = {
    "group": NAMING_GROUPS,
    "group_state": NAMING_GROUPS,
    "transactional_id": NAMING_IDS,
    "transaction_state": NAMING_IDS,
    "result": NAMING_RESULTS,
}
"""The APIs whose requests have these fields."""


def _check_producer(name: str, api: str) -> None:
    if name == "base_sequence" or api not in NAMING_PRODUCERS:
        raise RuleError(f"match.{name}: only {BATCH_API} carries batches, and match.api is {api}")


def check_api(match: Match) -> None:
    """Raises `RuleError` for an API that is not served, or that lacks something else being matched."""
    api = match.api
    if api is None:
        return
    if api not in APIS:
        known = ", ".join(sorted(APIS))
        raise RuleError(f"match.api takes one of {known}; not {api!r}{meant(api, APIS)}")
    for name in match.given:
        if name in BATCH_FIELDS and api != BATCH_API:
            _check_producer(name, api)
        for field, apis in _NAMED_BY.items():
            if name == field and api not in apis:
                raise RuleError(
                    f"match.{field} takes match.api: {', '.join(sorted(apis))}; not {api!r}"
                )
        if name == "topic" and _names(api) is Names.NOTHING:
            raise RuleError(f"match.topic: {api} requests name no topics")
        if name == "partition" and _names(api) is not Names.PARTITIONS:
            raise RuleError(f"match.partition: {api} requests name no partitions")
