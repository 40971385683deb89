"""Names that the shell completes: topics, groups, users, rules and listeners, as a running broker has them.

Nothing is completed where no broker answers, and nothing is said: a shell waits for the answer, between two keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from echoless.cli.cluster import ClusterConnections
from echoless.cli.options import ADMIN_DEFAULT, BOOTSTRAP_DEFAULT, BrokerOptions

if TYPE_CHECKING:
    from echoless.testkit.admin import Admin

_PATIENCE_S: Final = 2.0
_INTERNAL: Final = "__"


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin so; internal ones once two underscores are typed."""
    names = _asked(lambda: _topics(_broker(ctx)))
    return _beginning(
        (one for one in names if incomplete.startswith(_INTERNAL) or not one.startswith(_INTERNAL)),
        incomplete,
    )


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Consumer groups of all brokers that begin so."""
    return _beginning(_asked(lambda: _groups(_broker(ctx))), incomplete)


def transactional_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Transactional ids of all brokers that begin so."""
    return _beginning(_asked(lambda: _transactional_ids(_broker(ctx))), incomplete)


def rule_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Fault rules that begin so."""
    return _beginning(_asked(lambda: _rules(ctx)), incomplete)


def listener_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Listeners of the broker that begin so."""
    return _beginning(_asked(lambda: _listeners(ctx)), incomplete)


def user_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Users with a credential that begin so, of a running cluster; a coordinator is not opened for this."""
    return _beginning(_asked(lambda: _users(_broker(ctx))), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(one for one in names if one.startswith(incomplete))


def _asked(names: Callable[[], list[str]]) -> list[str]:
    """The names; none for whatever reason they cannot be had."""
    try:
        return names()
    except Exception:  # noqa: BLE001 - words on a line that is being typed help no one
        return []


def _topics(broker: BrokerOptions) -> list[str]:
    with ClusterConnections.open(broker) as cluster:
        return [str(topic.name) for topic in cluster.metadata().topics]


def _groups(broker: BrokerOptions) -> list[str]:
    from echoless.cli.group_offsets import listed_groups

    with ClusterConnections.open(broker) as cluster:
        return [str(one["group"]) for one in listed_groups(cluster)]


def _transactional_ids(broker: BrokerOptions) -> list[str]:
    from echoless.cli.open_transactions import listed_transactions

    with ClusterConnections.open(broker) as cluster:
        return [str(one["transactional_id"]) for one in listed_transactions(cluster)]


def _users(broker: BrokerOptions) -> list[str]:
    with ClusterConnections.open(broker) as cluster:
        answer = cluster.request("describe_user_scram_credentials", {"users": None})
    return [str(row.user) for row in answer.results]


def _rules(ctx: typer.Context) -> list[str]:
    return [str(rule["name"]) for rule in _admin(ctx).get("/faults")["rules"]]


def _listeners(ctx: typer.Context) -> list[str]:
    return [str(one["listener"]) for one in _admin(ctx).get("/listeners")["listeners"]]


def _admin(ctx: typer.Context) -> Admin:
    """The admin port that the options before, or the environment, name."""
    from echoless.cli.admin import admin_ports
    from echoless.testkit.admin import Admin

    given = ctx.params
    place = given.get("admin") or os.environ.get("ECHOLESS_ADMIN") or ADMIN_DEFAULT
    config = _given(given, "command_config", "ECHOLESS_COMMAND_CONFIG")
    token_file = _given(given, "admin_token_file", "ECHOLESS_ADMIN_TOKEN_FILE")
    ports = admin_ports([place], Path(token_file) if token_file else None, config)
    return Admin(ports.addresses[0], timeout_s=_PATIENCE_S, token=ports.token, tls=ports.tls)


def _broker(ctx: typer.Context) -> BrokerOptions:
    """The cluster that the options before, or the environment, name."""
    given = ctx.params
    return BrokerOptions(
        _given(given, "bootstrap_server", "ECHOLESS_BOOTSTRAP_SERVER") or BOOTSTRAP_DEFAULT,
        _given(given, "command_config", "ECHOLESS_COMMAND_CONFIG"),
    )


def _given(given: dict[str, Any], option: str, variable: str) -> str | None:
    value = given.get(option) or os.environ.get(variable)
    return None if value is None else str(value)
