"""Places in which `echoless acls` reads and changes ACLs: a running cluster, or its coordinator itself.

The coordinator is for the time before a broker runs: with an authorizer and no ACLs, no one but a super user
may add the first one. Commands import this file when they run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

from echoless.broker.authorization.acl_nodes import AclChangeError
from echoless.broker.authorization.acl_store import AclStore
from echoless.broker.environment import this_machine
from echoless.broker.handlers.acl_binding import check_binding
from echoless.broker.tree.embedded import TreeInUseError
from echoless.broker.tree.node_tree import CoordinationError
from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.coordinator_config import coordinator_config
from echoless.cli.errors import CommandError
from echoless.cli.options import BrokerOptions
from echoless.protocol.acl import (
    AclOperation,
    Binding,
    BindingFilter,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from echoless.protocol.errors import KafkaError


class AclTarget(Protocol):
    """One of these places. Everything raises `CommandError`."""

    def find(self, wanted: BindingFilter) -> list[Binding]:
        """The ACLs that match, in no order."""

    def add(self, bindings: Sequence[Binding]) -> None:
        """Adds ACLs; those that exist already stay."""

    def remove(self, wanted: BindingFilter) -> list[Binding]:
        """Removes the ACLs that match, and returns them."""


class RunningCluster:
    """A cluster, through one of its brokers."""

    def __init__(self, broker: BrokerOptions) -> None:
        self._broker = broker

    def find(self, wanted: BindingFilter) -> list[Binding]:
        answer = self._ask("describe_acls", _filter_fields(wanted))
        check(answer.error_code, "acls", answer.error_message)
        return [_binding(resource, acl) for resource in answer.resources for acl in resource.acls]

    def add(self, bindings: Sequence[Binding]) -> None:
        creations = [
            {
                "resource_type": int(pattern.resource_type),
                "resource_name": pattern.name,
                "resource_pattern_type": int(pattern.pattern_type),
                "principal": entry.principal,
                "host": entry.host,
                "operation": int(entry.operation),
                "permission_type": int(entry.permission),
            }
            for pattern, entry in bindings
        ]
        answer = self._ask("create_acls", {"creations": creations})
        for result in answer.results:
            check(result.error_code, "acls", result.error_message)

    def remove(self, wanted: BindingFilter) -> list[Binding]:
        answer = self._ask("delete_acls", {"filters": [_filter_fields(wanted)]})
        (result,) = answer.filter_results
        check(result.error_code, "acls", result.error_message)
        for acl in result.matching_acls:
            check(acl.error_code, acl.resource_name, acl.error_message)
        return [_binding(acl, acl) for acl in result.matching_acls]

    def _ask(self, api: str, fields: dict[str, Any]) -> Any:
        with ClusterConnections.open(self._broker) as cluster:
            return cluster.request(api, fields)


class CoordinatorTarget:
    """The coordinator, without a broker: that of a stopped stand-alone broker, or ZooKeeper."""

    def __init__(self, data_dir: str | None, coordinator: str | None) -> None:
        """Raises `CommandError`."""
        self._config = coordinator_config(data_dir, coordinator)
        if self._config.zookeeper_hosts is None:
            Path(self._config.data_dir).mkdir(parents=True, exist_ok=True)

    def find(self, wanted: BindingFilter) -> list[Binding]:
        return asyncio.run(self._change(wanted, (), is_removal=False))

    def add(self, bindings: Sequence[Binding]) -> None:
        try:
            for binding in bindings:
                check_binding(binding)
        except KafkaError as error:
            raise CommandError(error.message) from error
        asyncio.run(self._change(None, bindings, is_removal=False))

    def remove(self, wanted: BindingFilter) -> list[Binding]:
        return asyncio.run(self._change(wanted, (), is_removal=True))

    async def _change(
        self, wanted: BindingFilter | None, added: Iterable[Binding], *, is_removal: bool
    ) -> list[Binding]:
        """Adds ACLs, and returns those that match; removes them if that is asked for."""
        try:
            tree = await this_machine().open_tree(self._config)
        except TreeInUseError as error:
            raise CommandError(f"{error}; stop it, or pass --bootstrap-server to ask it") from error
        except CoordinationError as error:
            raise CommandError(str(error)) from error
        store = AclStore(tree, Random(), lambda: None)  # noqa: S311 - spreads retries
        try:
            await store.list_once()
            for pattern, entry in added:
                await store.update(pattern, lambda before, one=entry: before | {one})  # type: ignore[misc]
            found = [] if wanted is None else [one for one in store.acls if wanted.matches(one)]
            for pattern, entry in found if is_removal else ():
                await store.update(pattern, lambda before, one=entry: before - {one})  # type: ignore[misc]
        except (AclChangeError, CoordinationError) as error:
            raise CommandError(str(error)) from error
        finally:
            await tree.close()
        return found


def _filter_fields(wanted: BindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }


def _binding(resource: Any, acl: Any) -> Binding:
    return Binding(
        Pattern(
            ResourceType(resource.resource_type),
            PatternType(resource.pattern_type),
            resource.resource_name,
        ),
        Entry(
            acl.principal, acl.host, AclOperation(acl.operation), Permission(acl.permission_type)
        ),
    )
