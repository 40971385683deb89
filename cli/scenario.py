"""`echoless scenario`: the protocol's flows, played by the scripted producer or a real client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from echoless.cli.errors import CommandError
from echoless.cli.options import Json
from echoless.cli.output import console, counted, print_json, print_table

app = typer.Typer(
    no_args_is_help=True, help="Play the protocol's flows against brokers of their own."
)


@app.command("list")
def list_scenarios(as_json: Json = False) -> None:
    """List all scenarios, and the clients that have a part in each."""
    from echoless.testkit.scenarios.catalogue import SCENARIOS
    from echoless.testkit.scenarios.parts import CLIENTS, NO_PART

    found = [
        {
            "name": one.name,
            "shows": one.shows,
            "brokers": one.brokers,
            "clients": [client for client in CLIENTS if (one.name, client) not in NO_PART],
        }
        for one in SCENARIOS.values()
    ]
    if as_json:
        print_json(found)
        return
    rows = [(one["name"], one["shows"], one["brokers"]) for one in found]
    print_table(counted(len(found), "scenario"), ("name", "shows", "brokers"), rows)
    console().print(f"clients: {', '.join(CLIENTS)}", soft_wrap=True)


@app.command("run")
def run_scenario(
    name: Annotated[str, typer.Argument(help="A name of `echoless scenario list`.")],
    client: Annotated[str, typer.Option(help="The client that plays the producer.")] = "scripted",
    svg: Annotated[Path | None, typer.Option(help="Write the sequence diagram here.")] = None,
    as_json: Json = False,
) -> None:
    """Play one scenario: the steps, the verdict and the diagram.

    Status 1 if the outcome is not the expected one.
    """
    from echoless.diagram import render_mermaid, render_svg

    run = _play(name, client)
    if svg is not None:
        svg.write_text(render_svg(run.events, name))
    if as_json:
        print_json(_document(run))
    else:
        _show(run)
        console().print(render_mermaid(run.events), soft_wrap=True)
    if run.problem is not None:
        raise CommandError(f"{name}, {client}: {run.problem}")


def _play(name: str, client: str) -> Any:
    from echoless.testkit.broker_process import BrokerStartError
    from echoless.testkit.clients.build import BuildError
    from echoless.testkit.clients.driver import DriverError
    from echoless.testkit.scenarios.catalogue import SCENARIOS
    from echoless.testkit.scenarios.parts import CLIENTS, NO_PART
    from echoless.testkit.scenarios.run import new_client, run
    from echoless.testkit.scenarios.servers import Servers
    from echoless.testkit.zookeeper_process import ZooKeeperError

    if name not in SCENARIOS:
        raise CommandError(f"there is no scenario {name}; there are {', '.join(SCENARIOS)}")
    if client not in CLIENTS:
        raise CommandError(f"there is no client {client}; there are {', '.join(CLIENTS)}")
    if (reason := NO_PART.get((name, client))) is not None:
        raise CommandError(f"{client} has no part in {name}: {reason}")
    scenario = SCENARIOS[name]
    try:
        player = new_client(client)
        try:
            with Servers(scenario.brokers, scenario.settings, scenario.users) as servers:
                return run(scenario, player, servers)
        finally:
            player.end()
    except (BrokerStartError, BuildError, DriverError, ZooKeeperError) as error:
        raise CommandError(str(error)) from error


def _show(run: Any) -> None:
    out = console()
    out.print(f"{run.scenario}, played by {run.client} {run.version}".rstrip(), style="bold")
    for number, step in enumerate(run.steps, 1):
        out.print(f"{number:3}. {step}", soft_wrap=True)
    verdict = run.verdict
    out.print(f"verdict: {verdict.outcome.value}", style="bold")
    counts = ("sent", "acknowledged", "stored", "lost", "duplicates", "out_of_order")
    out.print(", ".join(f"{name.replace('_', ' ')} {getattr(verdict, name)}" for name in counts))
    for error, count in verdict.failures.items():
        out.print(f"given up with {error}: {count}")
    out.print(f"client: {'cannot go on: ' + verdict.fatal if verdict.fatal else 'can go on'}\n")


def _document(run: Any) -> dict[str, Any]:
    verdict = run.verdict._asdict()
    return {
        "scenario": run.scenario,
        "client": run.client,
        "version": run.version,
        "steps": run.steps,
        "verdict": {**verdict, "outcome": verdict["outcome"].value},
        "limitation": _limitation(run),
        "problem": run.problem,
        "events": run.events,
    }


def _limitation(run: Any) -> str | None:
    """Why a client's known outcome of this scenario differs."""
    from echoless.testkit.scenarios.parts import LIMITATIONS

    known = LIMITATIONS.get((run.scenario, run.client))
    return None if known is None else known.reason
