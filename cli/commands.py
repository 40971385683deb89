"""All subcommands except `serve`'s own parsing: one file each, assembled here."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from echoless.cli import (
    accept_loss,
    acls,
    brokers,
    consume,
    coordinator,
    decisions,
    demo,
    dump,
    faults,
    features,
    groups,
    produce,
    producers,
    scenario,
    strays,
    topics,
    trace,
    transactions,
    users,
    verify,
)

app = typer.Typer(
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


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


@app.callback()
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


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def serve(context: typer.Context) -> None:
    """Run one broker until SIGTERM or SIGINT (serve --help lists its options)."""
    from echoless.broker.serve import main

    raise typer.Exit(main(context.args))


app.add_typer(topics.app, name="topics")
app.add_typer(acls.app, name="acls")
app.add_typer(faults.app, name="faults")
app.add_typer(features.app, name="features")
app.add_typer(groups.app, name="groups")
app.add_typer(coordinator.app, name="coordinator")
app.add_typer(scenario.app, name="scenario")
app.add_typer(strays.app, name="strays")
app.add_typer(transactions.app, name="transactions")
app.add_typer(users.app, name="users")
app.command("brokers")(brokers.brokers)
app.command("consume")(consume.consume)
app.command("produce")(produce.produce)
app.command("producers")(producers.producers)
app.command("dump")(dump.dump)
app.command("verify")(verify.verify)
app.command("accept-loss")(accept_loss.accept_loss)
app.command("decisions")(decisions.decisions)
app.command("trace")(trace.trace)
app.command("demo")(demo.demo)
