"""Rules that are well formed but can never act on this broker."""

from __future__ import annotations

from collections.abc import Sequence

from echoless.broker.config.loading import Config
from echoless.broker.faults.fields import RuleError
from echoless.broker.faults.rule import RuleText
from echoless.broker.handlers.apis import API_BY_NAME


def check_feasible(rules: Sequence[RuleText], config: Config) -> None:
    """Raises `RuleError` for the first of them."""
    for rule in rules:
        _check_version(rule)
        if rule.action.type == "expire_login":
            _check_login(config)
        if rule.action.broker_id is not None:
            _check_link(rule.action.broker_id, config)


def _check_version(rule: RuleText) -> None:
    api, version = rule.match.api, rule.match.api_version
    if api is None or version is None:
        return
    found = API_BY_NAME.get(api)
    if found is None:
        raise RuleError(f"match.api_version: {api} is of the native port, which has none")
    if not found.serves(version):
        raise RuleError(
            f"match.api_version: {api} is served in versions {found.version_min} to "
            f"{found.version_max}, not {version}"
        )


def _check_login(config: Config) -> None:
    if not any(one.protocol.is_sasl for one in config.listener_security_protocol_map):
        raise RuleError(
            "expire_login: clients of this broker do not log in; give a listener SASL "
            "(listener_security_protocol_map)"
        )


def _check_link(broker_id: int, config: Config) -> None:
    if config.zookeeper_hosts is None:
        raise RuleError("cut_replica_link: this broker stands alone, it has no link to any other")
    if broker_id == config.broker_id:
        raise RuleError(
            f"action.broker_id takes the broker at the other end, and {broker_id} is this one"
        )
