"""All subcommands except `serve`'s own parsing: one file each, assembled here.

Only the file of the command that was asked for is imported, since importing all takes longer than most commands do.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

_HELP: Final[Mapping[str, str]] = {
    "brokers": "Show what each broker holds: partitions, how many it leads, bytes; with an id, each of its partitions.",
    "consume": "Print the records of a topic.",
    "produce": "Send each line of standard input as a record; each is stored once.",
    "producers": "Show the idempotent producers that a topic remembers.",
    "dump": "Show batches or records of a log, entries of indexes, snapshots and checkpoints.",
    "verify": "Check a data directory: checksums, offsets, sequences, snapshots, indexes, topics.",
    "accept-loss": "Accept that a partition has lost records; without that, the broker refuses to start.",
    "decisions": "Show each batch with its verdict, the reason and the window against which it was judged.",
    "trace": "Draw what producers sent, what was lost, and what the broker decided, step by step.",
    "record": "Record requests, decisions and faults, to be drawn by echoless trace and played again by echoless replay.",
    "replay": "Play the batches of a recording to any broker, with their numbers; exit with 1 if one is decided otherwise.",
    "demo": "Lose acknowledgements on purpose, and count what is stored without and with idempotence.",
    "topics": "Create, list, describe, alter, move and delete topics.",
    "acls": "Say who may do what.",
    "faults": "Lose, delay and break requests by rules.",
    "features": "Show the level of what the cluster stores, which its oldest broker bounds; raise it after an upgrade.",
    "groups": "Show consumer groups and their lag; move their offsets; delete them.",
    "listeners": "Show and set the addresses that clients are given.",
    "coordinator": "Repair the coordinator's data.",
    "scenario": "Play the protocol's flows against brokers of their own.",
    "strays": "Logs that were set aside, with the broker stopped.",
    "transactions": "Show transactional ids and their transactions; abort one.",
    "users": "Manage the users who log in by SCRAM or PLAIN.",
}
"""The commands, in the order in which they are listed, and what each file says that it does."""
COMMANDS: Final[Collection[str]] = tuple(_HELP)
_COMPLETION: Final = "_ECHOLESS_COMPLETE"
"""The variable with which a shell asks how a line may go on."""
_SENTENCE_MAX: Final = 1000


class _Commands(TyperGroup):
    """Commands whose list says of each all that its first sentence says, on as many lines as that takes.

    Plain text: to import what draws frames around it takes as long as everything else in `--help`.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, one.get_short_help_str(_SENTENCE_MAX)) for name, one in found if one]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The command line with the command that the arguments begin with; only help about the others."""
    if _COMPLETION in os.environ:
        return app_with(COMMANDS)
    return app_with([one for one in arguments if not one.startswith("-")][:1])


def app_with(names: Collection[str]) -> typer.Typer:
    """The command line with these commands; only help about the others."""
    app = typer.Typer(
        cls=_Commands,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(echoless)
    app.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        add_help_option=False,
    )(serve)
    for name, text in _HELP.items():
        if name in names:
            _add(app, name)
        else:
            app.command(name, help=text)(_listed)
    return app


def _add(app: typer.Typer, name: str) -> None:
    """Adds the command's file: an app of its own, or one function."""
    attribute = name.replace("-", "_")
    module = import_module(f"echoless.cli.{attribute}")
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name, cls=_Commands)
    else:
        app.command(name)(getattr(module, attribute))


def _listed() -> None:
    raise AssertionError("a command ran that was only to be listed")


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"echoless {version('echoless')}")
        except PackageNotFoundError:
            typer.echo("echoless, run from its source tree")
        raise typer.Exit


_HOW_TO_BEGIN: Final = """\
echoless demo                            shows in three seconds what it is for
echoless serve                           runs a broker on 127.0.0.1:9092
seq 3 | echoless produce orders          sends three records, each stored once
echoless consume orders                  prints them
echoless --help                          lists every command
"""


def echoless(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback acts
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A Kafka-wire-compatible mini-broker: a record sent is a record stored once."""
    if context.invoked_subcommand is None:
        typer.echo(_HOW_TO_BEGIN, nl=False)


def serve(context: typer.Context) -> None:
    """Run one broker until SIGTERM or SIGINT (serve --help lists its options)."""
    from echoless.broker.serve import main

    raise typer.Exit(main(context.args))
