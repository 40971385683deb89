"""`echoless faults`: the rules by which a broker loses, delays and breaks (docs/faults.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from echoless.cli.admin import admin_port
from echoless.cli.completion import rule_names
from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import AdminPort, Json
from echoless.cli.output import counted, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Lose, delay and break requests by rules.")

_PAGE: Final = "/faults"
_WHOLE_NUMBER: Final = re.compile(r"-?\d+")
_RANGE: Final = re.compile(r"(\d+)-(\d+)")
_TEXTS: Final = frozenset(
    {"topic", "client_id", "api", "path", "principal", "right", "group", "member"}
)
"""Fields whose values are texts even if they look like numbers."""
_COLUMNS: Final = ("name", "match", "schedule", "action", "seen", "hits", "exhausted")


@app.command("list")
@grouped
def show(
    *,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Show the rules, and how often each has acted."""
    with admin_port(admin) as port:
        _print(port.get(_PAGE)["rules"], as_json=as_json)


@app.command(no_args_is_help=True)
@grouped
def add(  # noqa: PLR0917 - typer makes options of them
    action: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ACTION [FIELD=VALUE]...",
            help="What to do, such as: drop_response, or: delay_response ms=100-300.",
            show_default=False,
        ),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="What it applies to; all must match."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The rule's name.")] = None,
    skip: Annotated[int | None, typer.Option(min=0, help="Skip the first ones.")] = None,
    times: Annotated[int | None, typer.Option(min=1, help="At most this many times.")] = None,
    probability: Annotated[float | None, typer.Option(help="Probability, from 0 to 1.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the probability.")] = None,
    duration_ms: Annotated[int | None, typer.Option(help="Duration of the rule.")] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add the rules of a JSON file instead.")
    ] = None,
    *,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Add a rule, or all rules of a file."""
    if (file is None) == (not action):
        raise CommandError("faults add: takes an action, or --file")
    schedule = {
        "skip": skip,
        "times": times,
        "probability": probability,
        "seed": seed,
        "duration_ms": duration_ms,
    }
    if file is not None:
        rules = _read(file)
    else:
        rules = {
            "name": name,
            "match": _fields(match or ()),
            "schedule": {field: value for field, value in schedule.items() if value is not None},
            "action": {"type": (action or [""])[0], **_fields((action or [])[1:])},
        }
    with admin_port(admin) as port:
        _print(port.post(_PAGE, rules)["rules"], as_json=as_json)


@app.command()
@grouped
def remove(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="The rules' names.", autocompletion=rule_names),
    ],
    *,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Remove rules; shows them with their last counts."""
    with admin_port(admin) as port:
        removed = [port.delete(f"{_PAGE}/{quote(name, safe='')}")["rules"][0] for name in names]
    _print(removed, as_json=as_json)


@app.command()
@grouped
def clear(
    *,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Remove all rules; shows them with their last counts."""
    with admin_port(admin) as port:
        _print(port.delete(_PAGE)["rules"], as_json=as_json)


def _fields(pairs: Iterable[str]) -> dict[str, Any]:
    """`FIELD=VALUE` pairs as the JSON of a rule."""
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise CommandError(f"faults add: takes FIELD=VALUE, not {pair!r}")
        fields[name] = _value(name, text)
    return fields


def _value(name: str, text: str) -> Any:
    if name in _TEXTS:
        return text
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    found = _RANGE.fullmatch(text)
    return [int(found[1]), int(found[2])] if found and name == "ms" else text


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"--file: cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"--file: {file} is not JSON: {error}") from error


def _print(rules: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(rules)
        return
    print_table(
        counted(len(rules), "rule"),
        _COLUMNS,
        [[_cell(rule[name]) for name in _COLUMNS] for rule in rules],
    )


def _cell(value: Any) -> Any:
    if not isinstance(value, dict):
        return {True: "yes", False: "no"}.get(value) if isinstance(value, bool) else value
    kind = [value["type"]] if "type" in value else []
    return " ".join(kind + [f"{name}={one}" for name, one in value.items() if name != "type"])
