"""`echoless faults`: the rules by which a broker loses, delays and breaks (docs/faults.md)."""

from __future__ import annotations

import json
import re
import time
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
_ASK_FOR_S: Final = 5.0
Strict = Annotated[
    bool, typer.Option("--strict", help="Fail if a rule never struck that is not optional.")
]
RuleName = Annotated[
    str, typer.Argument(metavar="NAME", help="The rule's name.", autocompletion=rule_names)
]
_WHOLE_NUMBER: Final = re.compile(r"-?\d+")
_FRACTION: Final = re.compile(r"\d*\.\d+")
_RANGE: Final = re.compile(r"(\d+)-(\d+)")
_TEXTS: Final = frozenset(
    {
        *("topic", "client_id", "api", "path", "principal", "right", "group", "member"),
        *("transactional_id", "group_state", "transaction_state"),
    }
)
"""Fields whose values are texts even if they look like numbers."""
_SCHEDULE: Final = frozenset({"nth", "skip", "times", "every", "probability", "seed"})
"""Fields that a step of a script gives to its schedule."""
_THEN: Final = "then"
_COLUMNS: Final = ("name", "match", "schedule", "action", "seen", "hits", "exhausted")


@app.command("list")
@grouped
def show(
    *,
    strict: Strict = False,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Show the rules, and how often each has matched (seen) and struck (hits)."""
    with admin_port(admin) as port:
        found = port.get(_PAGE)
    _print(found["rules"], as_json=as_json)
    _check_struck(found.get("never_struck", []), strict=strict)


@app.command(no_args_is_help=True)
@grouped
def add(  # noqa: PLR0917 - typer makes options of them
    action: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ACTION [FIELD=VALUE]... [then ACTION...]",
            help="What to do, such as: drop_response then delay_response ms=100-300 then close_after.",
            show_default=False,
        ),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="What it applies to; all must match."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The rule's name.")] = None,
    nth: Annotated[
        str | None, typer.Option(metavar="N[,N]...", help="Only the nth, or several of them.")
    ] = None,
    every: Annotated[int | None, typer.Option(min=1, help="Every nth one.")] = None,
    skip: Annotated[int | None, typer.Option(min=0, help="Skip the first ones.")] = None,
    times: Annotated[int | None, typer.Option(min=1, help="At most this many times.")] = None,
    probability: Annotated[float | None, typer.Option(help="Probability, from 0 to 1.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the probability.")] = None,
    duration_ms: Annotated[int | None, typer.Option(help="Duration of the rule.")] = None,
    optional: Annotated[
        bool, typer.Option("--optional", help="It need not strike (see --strict).")
    ] = False,
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
        "nth": None if nth is None else _numbers("--nth", nth),
        "every": every,
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
            "optional": optional,
            **_does(action or []),
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
    strict: Strict = False,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Remove rules; shows them with their last counts."""
    with admin_port(admin) as port:
        removed = [port.delete(f"{_PAGE}/{quote(name, safe='')}")["rules"][0] for name in names]
    _print(removed, as_json=as_json)
    _check_struck(_missed(removed), strict=strict)


@app.command()
@grouped
def clear(
    *,
    strict: Strict = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget which removed rules never struck.")
    ] = False,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Remove all rules; shows them with their last counts."""
    with admin_port(admin) as port:
        removed = port.delete(f"{_PAGE}?forget=true" if forget else _PAGE)["rules"]
    _print(removed, as_json=as_json)
    _check_struck(_missed(removed), strict=strict)


@app.command()
@grouped
def wait(
    name: RuleName,
    hits: Annotated[int, typer.Option(min=0, help="How often it has struck.")] = 0,
    held: Annotated[int, typer.Option(min=0, help="How many requests it holds.")] = 0,
    within_ms: Annotated[int, typer.Option(min=0, help="How long to wait.")] = 30_000,
    *,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Wait until a rule has struck, or holds a request; fails if that takes too long."""
    from echoless.testkit.faults import Faults

    ends_at = time.monotonic() + within_ms / 1000
    with admin_port(admin) as port:
        faults = Faults(port)
        try:
            for field, count in (("hits", hits), ("held", held)):
                while not faults.has_come_to(name, field, count, min(_left_s(ends_at), _ASK_FOR_S)):
                    if not _left_s(ends_at):
                        late = f"no {count} {field} in {within_ms} ms"
                        raise CommandError(f"faults wait: {name}: {late}")
        except LookupError as error:
            raise CommandError(f"faults wait: {error}") from error
        _print(port.get(f"{_PAGE}/{quote(name, safe='')}")["rules"], as_json=as_json)


def _left_s(ends_at: float) -> float:
    return max(0.0, ends_at - time.monotonic())


@app.command()
@grouped
def release(
    name: RuleName,
    count: Annotated[
        int | None, typer.Option(min=1, help="The number of the oldest ones; all if missing.")
    ] = None,
    *,
    admin: AdminPort,
    as_json: Json = False,
) -> None:
    """Release requests that a rule holds; shows the rule."""
    body = {} if count is None else {"count": count}
    with admin_port(admin) as port:
        released = port.post(f"{_PAGE}/{quote(name, safe='')}/release", body)
    _print(released["rules"], as_json=as_json)


def _missed(rules: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules that never struck and are not optional."""
    return [
        rule
        for rule in rules
        if not rule.get("optional") and not all(one["hits"] for one in rule.get("script", [rule]))
    ]


def _check_struck(missed: Sequence[dict[str, Any]], *, strict: bool) -> None:
    if strict and missed:
        names = ", ".join(rule["name"] for rule in missed)
        raise CommandError(f"never struck: {names} (--optional for a rule that need not strike)")


def _does(words: Sequence[str]) -> dict[str, Any]:
    """The `action` of a rule; or its `script`, if there is a `then`."""
    steps: list[list[str]] = [[]]
    for word in words:
        if word == _THEN:
            steps.append([])
        else:
            steps[-1].append(word)
    if len(steps) == 1:
        return {"action": _action(steps[0])}
    if not all(steps):
        raise CommandError(f"faults add: takes an action before and after each {_THEN}")
    return {"script": [_step(step) for step in steps]}


def _action(words: Sequence[str]) -> dict[str, Any]:
    return {"type": words[0], **_fields(words[1:])}


def _step(words: Sequence[str]) -> dict[str, Any]:
    """One step: fields of its action, of its schedule, and `match.FIELD`."""
    own: dict[str, dict[str, Any]] = {"match": {}, "schedule": {}, "action": {"type": words[0]}}
    for pair in words[1:]:
        name = pair.partition("=")[0]
        part = "match" if name.startswith("match.") else "action"
        part = "schedule" if name in _SCHEDULE else part
        own[part] |= _fields([pair.removeprefix("match.")])
    return own


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(one) for one in text.split(",")]
    except ValueError as error:
        raise CommandError(f"{option}: takes numbers separated by commas, not {text!r}") from error


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
    if name == "probability" and _FRACTION.fullmatch(text):
        return float(text)
    if name == "nth" and "," in text:
        return _numbers(name, text)
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
        [[_cell(_shown(rule, name)) for name in _COLUMNS] for rule in rules],
    )


def _shown(rule: dict[str, Any], column: str) -> Any:
    if column == "action" and "script" in rule:
        return f" {_THEN} ".join(str(_cell(step["action"])) for step in rule["script"])
    return rule[column]


def _cell(value: Any) -> Any:
    if not isinstance(value, dict):
        return {True: "yes", False: "no"}.get(value) if isinstance(value, bool) else value
    kind = [value["type"]] if "type" in value else []
    return " ".join(kind + [f"{name}={one}" for name, one in value.items() if name != "type"])
