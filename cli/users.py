"""`echoless users`: who may log in by SCRAM or PLAIN.

Works over a running broker, or, for the first users, on the coordinator itself before any broker runs. Passwords come
from a prompt or a file, never from an argument, which everyone on the machine could read.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final, NamedTuple

import typer

from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.completion import user_names
from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import Json
from echoless.cli.output import counted, print_json, print_table
from echoless.cli.places import TargetOptions
from echoless.protocol.sasl.mechanism import Mechanism

app = typer.Typer(no_args_is_help=True, help="Manage the users who log in by SCRAM or PLAIN.")

_ITERATIONS_DEFAULT: Final = 8192
_IDS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The ids of the mechanisms in requests."""


class ScramMechanism(enum.StrEnum):
    """The mechanisms that have credentials."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


Mechanisms = Annotated[
    list[ScramMechanism] | None,
    typer.Option("--mechanism", help="One mechanism; may be repeated. Without it: both."),
]
Name = Annotated[str, typer.Argument(help="The user's name.", autocompletion=user_names)]


@app.command()
@grouped
def add(
    name: Name,
    *,
    password_file: Annotated[
        str | None, typer.Option(help="Holds the password; without it you are asked.")
    ] = None,
    mechanism: Mechanisms = None,
    iterations: Annotated[
        int, typer.Option(min=4096, max=16384, help="How hard a password is to guess.")
    ] = _ITERATIONS_DEFAULT,
    place: TargetOptions,
) -> None:
    """Add a user, or give one a new password; open connections stay."""
    from echoless.protocol.sasl.scram import new_salt, salted_password

    password = _password(name, password_file)
    upsertions = []
    for chosen in _chosen(mechanism):
        salt = new_salt()
        upsertions.append(
            {
                "name": name,
                "mechanism": _IDS[chosen],
                "iterations": iterations,
                "salt": salt,
                "salted_password": salted_password(Mechanism(chosen), password, salt, iterations),
            }
        )
    _Users(place).alter(name, [], upsertions)
    typer.echo(f"{name} can log in by {', '.join(_chosen(mechanism))}")


@app.command()
@grouped
def remove(
    name: Name,
    *,
    mechanism: Mechanisms = None,
    place: TargetOptions,
) -> None:
    """Remove a user's credentials; open connections stay."""
    users = _Users(place)
    known = {row["user"]: row["credentials"] for row in users.read()}
    present = [one for one in _chosen(mechanism) if one in known.get(name, {})]
    if not present or (mechanism and len(present) < len(mechanism)):
        raise CommandError(
            f"{name} has no such credential; echoless users list shows what there is"
        )
    deletions = [{"name": name, "mechanism": _IDS[one]} for one in present]
    users.alter(name, deletions, [])
    typer.echo(f"{name} can no longer log in by {', '.join(present)}")


@app.command("list")
@grouped
def list_users(
    *,
    json: Json = False,
    place: TargetOptions,
) -> None:
    """List the users and their mechanisms."""
    users = _Users(place).read()
    if json:
        print_json(users)
        return
    rows = [
        (row["user"], mechanism, iterations)
        for row in users
        for mechanism, iterations in row["credentials"].items()
    ]
    print_table(counted(len(users), "user"), ("user", "mechanism", "iterations"), rows)


def _chosen(mechanisms: list[ScramMechanism] | None) -> list[str]:
    return [str(one) for one in dict.fromkeys(mechanisms or ScramMechanism)]


def _password(name: str, path: str | None) -> str:
    if path is None:
        password: str = typer.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
        return password
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as it was given
            password = file.read().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise CommandError(f"--password-file: cannot read {path}: {reason}") from error
    if not password:
        raise CommandError(f"--password-file: {path} is empty")
    return password


class _Users(NamedTuple):
    """The users of a running cluster, or those in a coordinator."""

    place: TargetOptions

    def alter(
        self, name: str, deletions: list[dict[str, Any]], upsertions: list[dict[str, Any]]
    ) -> None:
        """Makes the changes of one user, all or none."""
        if self.place.is_coordinator:
            from echoless.cli.user_tree import alter_in_tree

            tree = self.place.data_dir, self.place.coordinator
            alter_in_tree(tree, name, deletions, upsertions)
            return
        fields = {"deletions": deletions, "upsertions": upsertions}
        with ClusterConnections.open(self.place.broker) as cluster:
            answer = cluster.request("alter_user_scram_credentials", fields)
        for row in answer.results:
            check(row.error_code, name, row.error_message)

    def read(self) -> list[dict[str, Any]]:
        """The users that have a credential, by name, with the iterations of each mechanism."""
        if self.place.is_coordinator:
            from echoless.cli.user_tree import read_from_tree

            return read_from_tree((self.place.data_dir, self.place.coordinator))
        with ClusterConnections.open(self.place.broker) as cluster:
            answer = cluster.request("describe_user_scram_credentials", {"users": None})
        check(answer.error_code, "the users", answer.error_message)
        return [{"user": row.user, "credentials": _credentials(row)} for row in answer.results]


def _credentials(row: Any) -> dict[str, int]:
    names = {number: name for name, number in _IDS.items()}
    return {names[int(one.mechanism)]: int(one.iterations) for one in row.credential_infos}
