"""`echoless listeners`: the addresses that a broker gives its clients, and how to change them while it runs (docs/listeners.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from echoless.cli.admin import admin_port
from echoless.cli.completion import listener_names
from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import AdminPort, Json
from echoless.cli.output import counted, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Show and set the addresses that clients are given.")

_PAGE: Final = "/listeners"
_COLUMNS: Final = ("listener", "protocol", "listens on", "clients get", "in networks", "configured")
_Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The listener, such as PLAINTEXT.", autocompletion=listener_names
    ),
]


@app.command("list")
@grouped
def show(
    *,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Show each listener, and the addresses that its clients are given."""
    with admin_port(admin) as port:
        _print(port.get(_PAGE)["listeners"], as_json=as_json)


@app.command("set", no_args_is_help=True)
@grouped
def set_addresses(
    name: _Name,
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[ADDRESS]",
            help="HOST:PORT, or arrival: where each client's connection arrived. Left out: as configured.",
            show_default=False,
        ),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NETWORK=ADDRESS",
            help="An address for clients of this network, such as 10.0.0.0/8=broker:9092.",
        ),
    ] = None,
    *,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Give a listener's clients another address, from now until the broker stops."""
    body: dict[str, Any] = {} if address is None else {"advertise": address}
    if network:
        body["networks"] = _networks(network)
    if not body:
        raise CommandError("listeners set: takes an address, or --network, or both")
    with admin_port(admin) as port:
        _print([port.put(_path(name), body)], as_json=as_json)


@app.command(no_args_is_help=True)
@grouped
def reset(
    name: _Name,
    *,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Give a listener's clients the configured addresses again."""
    with admin_port(admin) as port:
        _print([port.delete(_path(name))], as_json=as_json)


def _path(name: str) -> str:
    return f"{_PAGE}/{quote(name, safe='')}"


def _networks(pairs: Iterable[str]) -> dict[str, str]:
    networks: dict[str, str] = {}
    for pair in pairs:
        network, separator, address = pair.partition("=")
        if not separator or network in networks:
            raise CommandError(f"--network: takes NETWORK=ADDRESS, each network once, not {pair!r}")
        networks[network] = address
    return networks


def _print(listeners: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(listeners)
        return
    rows = [
        (
            one["listener"],
            one["security_protocol"],
            one["listen"],
            one["advertise"],
            _listed(one["networks"]),
            _configured(one),
        )
        for one in listeners
    ]
    print_table(counted(len(rows), "listener"), _COLUMNS, rows)


def _configured(listener: dict[str, Any]) -> str:
    configured = listener["configured"]
    return " ".join(filter(None, (configured["advertise"], _listed(configured["networks"]))))


def _listed(networks: dict[str, str]) -> str:
    return " ".join(f"{network}={address}" for network, address in networks.items())
