"""`echoless acls`: add, list and remove access control lists (docs/acls.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.errors import CommandError
from cli.options import BOOTSTRAP_DEFAULT, BootstrapServer, Json
from cli.output import print_json, print_table

if TYPE_CHECKING:
    from cli.acl_targets import AclTarget
    from protocol.acl import AclOperation, Binding, BindingFilter, Pattern

app = typer.Typer(help="Say who may do what.", no_args_is_help=True)

Principal = Annotated[
    str | None, typer.Option(metavar="TYPE:NAME", help="As User:alice, or User:* for everyone.")
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation", metavar="NAME", help="As read, write, describe-configs, all; repeatable."
    ),
]
Topic = Annotated[str | None, typer.Option(metavar="NAME", help="A topic, or * for all.")]
Group = Annotated[str | None, typer.Option(metavar="NAME", help="A group, or * for all.")]
TransactionalId = Annotated[
    str | None, typer.Option(metavar="ID", help="A transactional id, or * for all.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The name is the beginning of names.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only from this address.")]
DataDir = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help="Change the coordinator in a stopped broker's data directory."
    ),
]
CoordinatorUrl = Annotated[
    str | None,
    typer.Option(
        "--coordinator", metavar="URL", help="Change the coordinator: zookeeper://HOST:PORT/CHROOT."
    ),
]

_COLUMNS: Final = ("resource", "name", "pattern", "principal", "host", "operation", "permission")


@app.command()
def add(  # noqa: PLR0917 - typer makes options of them
    principal: Principal = None,
    operation: Operations = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: OfCluster = False,
    prefixed: Prefixed = False,
    deny: Deny = False,
    host: Host = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    data_dir: DataDir = None,
    coordinator: CoordinatorUrl = None,
) -> None:
    """Allow a principal something, or deny it."""
    from protocol.acl import Binding, Entry, Permission, java_host

    resource = _pattern(topic, group, transactional_id, cluster=cluster, prefixed=prefixed)
    if resource is None or principal is None or not operation:
        raise CommandError(
            "--principal, --operation and one of --topic, --group, --transactional-id and "
            "--cluster are needed"
        )
    permission = Permission.DENY if deny else Permission.ALLOW
    address = "*" if host is None else java_host(host)
    bindings = [
        Binding(resource, Entry(principal, address, _operation(one), permission))
        for one in operation
    ]
    _target(bootstrap_server, data_dir, coordinator).add(bindings)
    for binding in bindings:
        typer.echo(f"added: {_sentence(binding)}", err=True)


@app.command("list")
def list_acls(  # noqa: PLR0917 - typer makes options of them
    principal: Principal = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: OfCluster = False,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    data_dir: DataDir = None,
    coordinator: CoordinatorUrl = None,
    as_json: Json = False,
) -> None:
    """List ACLs: all, or those that are about a resource, prefixes and wildcards included."""
    from protocol.acl import MATCH, BindingFilter

    resource = _pattern(topic, group, transactional_id, cluster=cluster, prefixed=False)
    wanted = BindingFilter(principal=principal)
    if resource is not None:
        wanted = wanted._replace(
            resource_type=resource.resource_type, name=resource.name, pattern_type=MATCH
        )
    found = sorted(_target(bootstrap_server, data_dir, coordinator).find(wanted))
    rows = [_row(binding) for binding in found]
    if as_json:
        print_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table(f"{len(rows)} ACLs", _COLUMNS, rows)


@app.command()
def remove(  # noqa: PLR0917 - typer makes options of them
    principal: Principal = None,
    operation: Operations = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: OfCluster = False,
    prefixed: Prefixed = False,
    deny: Annotated[bool, typer.Option("--deny", help="Only those that deny.")] = False,
    host: Host = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    data_dir: DataDir = None,
    coordinator: CoordinatorUrl = None,
) -> None:
    """Remove the ACLs of exactly this name or prefix, and of a principal, that the options describe."""
    resource = _pattern(topic, group, transactional_id, cluster=cluster, prefixed=prefixed)
    if resource is None and principal is None:
        raise CommandError(
            "--principal, or one of --topic, --group, --transactional-id and --cluster is needed"
        )
    target = _target(bootstrap_server, data_dir, coordinator)
    removed: list[Binding] = []
    for one in operation or (None,):
        removed += target.remove(_filter(resource, principal, one, host, deny=deny))
    if not removed:
        raise CommandError("there is no such ACL; echoless acls list shows what there is")
    for binding in sorted(removed):
        typer.echo(f"removed: {_sentence(binding)}", err=True)


def _filter(
    resource: Pattern | None,
    principal: str | None,
    operation: str | None,
    host: str | None,
    *,
    deny: bool,
) -> BindingFilter:
    from protocol.acl import ANY, BindingFilter, Permission, java_host

    wanted = BindingFilter(
        principal=principal,
        host=None if host is None else java_host(host),
        operation=ANY if operation is None else _operation(operation),
        permission=Permission.DENY if deny else ANY,
    )
    if resource is None:
        return wanted
    return wanted._replace(
        resource_type=resource.resource_type,
        name=resource.name,
        pattern_type=resource.pattern_type,
    )


def _target(bootstrap_server: str, data_dir: str | None, coordinator: str | None) -> AclTarget:
    from cli.acl_targets import Coordinator, RunningCluster

    if data_dir is not None and coordinator is not None:
        raise CommandError("either --data-dir or --coordinator, not both")
    if coordinator is not None and not coordinator.startswith("zookeeper://"):
        raise CommandError(f"--coordinator: takes zookeeper://HOST:PORT, not {coordinator!r}")
    if data_dir is None and coordinator is None:
        return RunningCluster(bootstrap_server)
    return Coordinator(data_dir, coordinator)


def _pattern(
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    *,
    cluster: bool,
    prefixed: bool,
) -> Pattern | None:
    """The resource that the options name; None if they name none."""
    from protocol.acl import CLUSTER_NAME, Pattern, PatternType, ResourceType

    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    found = [(kind, name) for kind, name in named.items() if name is not None]
    if len(found) > 1:
        raise CommandError("only one of --topic, --group, --transactional-id and --cluster")
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return None if not found else Pattern(found[0][0], pattern_type, found[0][1])


def _operation(text: str) -> AclOperation:
    from protocol.acl import AclOperation

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
