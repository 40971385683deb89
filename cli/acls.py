"""`echoless acls`: add, list and remove access control lists (docs/acls.md)."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import Json
from echoless.cli.output import counted, print_json, print_table
from echoless.cli.places import TargetOptions
from echoless.protocol.acl import (
    ANY,
    CLUSTER_NAME,
    MATCH,
    AclOperation,
    Binding,
    BindingFilter,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    java_host,
)

if TYPE_CHECKING:
    from echoless.cli.acl_targets import AclTarget

app = typer.Typer(help="Say who may do what.", no_args_is_help=True)

Principals = Annotated[
    list[str] | None,
    typer.Option(
        "--principal",
        metavar="TYPE:NAME",
        help="As User:alice, or User:* for everyone; repeatable.",
    ),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation", metavar="NAME", help="As read, write, describe-configs, all; repeatable."
    ),
]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The name is the beginning of names.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only from this address.")]


class Resources(NamedTuple):
    """The resources that ACLs are about, of one type. A group of options."""

    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME", help="A topic, or * for all; repeatable."),
    ] = None
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME", help="A group, or * for all; repeatable."),
    ] = None
    transactional_id: Annotated[
        list[str] | None,
        typer.Option(
            "--transactional-id", metavar="ID", help="A transactional id, or * for all; repeatable."
        ),
    ] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster.")] = False


_COLUMNS: Final = ("resource", "name", "pattern", "principal", "host", "operation", "permission")


@app.command()
@grouped
def add(
    *,
    resources: Resources,
    principal: Principals = None,
    operation: Operations = None,
    prefixed: Prefixed = False,
    deny: Deny = False,
    host: Host = None,
    place: TargetOptions,
) -> None:
    """Allow a principal something, or deny it."""
    patterns = _patterns(resources, prefixed=prefixed)
    if not patterns or not principal or not operation:
        raise CommandError(
            "--principal, --operation and one of --topic, --group, --transactional-id and "
            "--cluster are needed"
        )
    permission = Permission.DENY if deny else Permission.ALLOW
    address = "*" if host is None else java_host(host)
    bindings = [
        Binding(pattern, Entry(one, address, operation_, permission))
        for pattern in patterns
        for one in principal
        for operation_ in map(_operation, operation)
    ]
    _target(place).add(bindings)
    for binding in bindings:
        typer.echo(f"added: {_sentence(binding)}", err=True)


@app.command("list")
@grouped
def list_acls(
    *,
    resources: Resources,
    principal: Principals = None,
    as_json: Json = False,
    place: TargetOptions,
) -> None:
    """List ACLs: all, or those that are about a resource, prefixes and wildcards included."""
    target = _target(place)
    found: set[Binding] = set()
    patterns = _patterns(resources, prefixed=False)
    for pattern, one in product(patterns or (None,), principal or (None,)):
        wanted = _about(BindingFilter(principal=one), pattern)
        found.update(
            target.find(wanted if pattern is None else wanted._replace(pattern_type=MATCH))
        )
    rows = [_row(binding) for binding in sorted(found)]
    if as_json:
        print_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table(counted(len(rows), "ACL"), _COLUMNS, rows)


@app.command()
@grouped
def remove(
    *,
    resources: Resources,
    principal: Principals = None,
    operation: Operations = None,
    prefixed: Prefixed = False,
    deny: Annotated[bool, typer.Option("--deny", help="Only those that deny.")] = False,
    host: Host = None,
    place: TargetOptions,
) -> None:
    """Remove the ACLs of exactly this name or prefix, and of a principal, that the options describe."""
    patterns = _patterns(resources, prefixed=prefixed)
    if not patterns and not principal:
        raise CommandError(
            "--principal, or one of --topic, --group, --transactional-id and --cluster is needed"
        )
    target = _target(place)
    removed: list[Binding] = []
    for pattern, one, operation_ in product(
        patterns or (None,), principal or (None,), operation or (None,)
    ):
        removed += target.remove(_filter(pattern, one, operation_, host, deny=deny))
    if not removed:
        raise CommandError("there is no such ACL; echoless acls list shows what there is")
    for binding in sorted(removed):
        typer.echo(f"removed: {_sentence(binding)}", err=True)


def _filter(
    pattern: Pattern | None,
    principal: str | None,
    operation: str | None,
    host: str | None,
    *,
    deny: bool,
) -> BindingFilter:
    wanted = BindingFilter(
        principal=principal,
        host=None if host is None else java_host(host),
        operation=ANY if operation is None else _operation(operation),
        permission=Permission.DENY if deny else ANY,
    )
    return _about(wanted, pattern)


def _about(wanted: BindingFilter, pattern: Pattern | None) -> BindingFilter:
    """The filter, restricted to the pattern if there is one."""
    if pattern is None:
        return wanted
    return wanted._replace(
        resource_type=pattern.resource_type,
        name=pattern.name,
        pattern_type=pattern.pattern_type,
    )


def _target(place: TargetOptions) -> AclTarget:
    from echoless.cli.acl_targets import CoordinatorTarget, RunningCluster

    if place.is_coordinator:
        return CoordinatorTarget(place.data_dir, place.coordinator)
    return RunningCluster(place.broker)


def _patterns(resources: Resources, *, prefixed: bool) -> list[Pattern]:
    """The patterns that the options name, all of one type of resource."""
    named = {
        ResourceType.TOPIC: resources.topic,
        ResourceType.GROUP: resources.group,
        ResourceType.TRANSACTIONAL_ID: resources.transactional_id,
        ResourceType.CLUSTER: [CLUSTER_NAME] if resources.cluster else None,
    }
    found = {kind: names for kind, names in named.items() if names}
    if len(found) > 1:
        raise CommandError("only one of --topic, --group, --transactional-id and --cluster")
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return [Pattern(kind, pattern_type, name) for kind, names in found.items() for name in names]


def _operation(text: str) -> AclOperation:
    name = text.upper().replace("-", "_")
    if name not in AclOperation.__members__:
        known = ", ".join(map(_word, AclOperation))
        raise CommandError(f"--operation: takes one of {known}; not {text!r}")
    return AclOperation[name]


def _word(one: object) -> str:
    return str(getattr(one, "name", one)).lower().replace("_", "-")


def _row(binding: Binding) -> tuple[str, ...]:
    pattern, entry = binding
    return (
        _word(pattern.resource_type),
        pattern.name,
        _word(pattern.pattern_type),
        entry.principal,
        entry.host,
        _word(entry.operation),
        _word(entry.permission),
    )


def _sentence(binding: Binding) -> str:
    kind, name, pattern, principal, host, operation, permission = _row(binding)
    where = "" if host == "*" else f" from {host}"
    return f"{permission} {principal}{where} {operation} on {pattern} {kind} {name}"
