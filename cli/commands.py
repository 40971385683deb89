"""All subcommands but `serve`'s own parsing: one file each, put together here."""

from __future__ import annotations

import typer

from cli import demo, dump, producers, topics, verify

app = typer.Typer(
    help="A Kafka-wire-compatible mini-broker: a record sent is a record stored once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def serve(context: typer.Context) -> None:
    """Run one broker until SIGTERM or SIGINT (serve --help lists its options)."""
    from broker.serve import main

    raise typer.Exit(main(context.args))


app.add_typer(topics.app, name="topics")
app.command("producers")(producers.producers)
app.command("dump")(dump.dump)
app.command("verify")(verify.verify)
app.command("demo")(demo.demo)
