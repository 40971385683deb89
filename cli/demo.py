"""`echoless demo`: why idempotence matters, in a few seconds and without any set-up.

A broker on free ports, a network in front of it that loses acknowledgements, and a real producer
that sends the same records twice over: once without and once with idempotence.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.errors import CommandError
from cli.options import Json
from cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from cli.demonstration.run import Outcome

_RUNS = {"without idempotence": False, "with idempotence": True}


def demo(
    records: Annotated[int, typer.Option(min=1, max=100_000, help="Records to send.")] = 1500,
    lose_every: Annotated[
        int, typer.Option(min=0, help="Lose every N-th acknowledgement; 0 loses none.")
    ] = 5,
    as_json: Json = False,
) -> None:
    """Lose acknowledgements on purpose, and count what is stored without and with idempotence."""
    with _progress() as progress:
        outcomes = asyncio.run(_play(records, lose_every, progress))
    if as_json:
        print_json([dataclasses.asdict(outcome) for outcome in outcomes])
    else:
        _show(outcomes)
    if any(one.idempotence and (one.duplicates or one.lost) for one in outcomes):
        raise CommandError("idempotence did not hold; please report this with the output above")


async def _play(records: int, lose_every: int, progress: Progress) -> list[Outcome]:
    """Both runs, one after the other, against one broker."""
    from cli.demonstration.broker_process import BrokerProcess
    from cli.demonstration.lossy_proxy import LossyProxy
    from cli.demonstration.run import PARTITIONS, DemoError, run

    outcomes = []
    async with (
        LossyProxy() as proxy,
        BrokerProcess(proxy.port, {"num_partitions": str(PARTITIONS)}) as broker,
    ):
        proxy.broker_port = broker.port
        proxy.lose_every = lose_every
        for name, idempotence in _RUNS.items():
            try:
                outcome = await run(
                    proxy,
                    name.replace(" ", "-"),
                    records,
                    idempotence=idempotence,
                    advance=_advancer(progress, name, records),
                )
            except (DemoError, TimeoutError) as error:
                raise CommandError(f"the run {name} failed: {error!r}") from error
            outcomes.append(outcome)
    return outcomes


def _advancer(progress: Progress, name: str, records: int) -> Callable[[int], None]:
    task = progress.add_task(name, total=records)
    return lambda count: progress.update(task, advance=count)


def _progress() -> Progress:
    shown = console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=shown,
        transient=True,
        disable=not shown.is_terminal,
    )


def _show(outcomes: Sequence[Outcome]) -> None:
    columns = ("", *_RUNS)
    values = [dataclasses.asdict(outcome) for outcome in outcomes]
    names = [name for name in values[0] if name != "idempotence"]
    rows = [(name.replace("_", " "), *(value[name] for value in values)) for name in names]
    print_table("one producer, a network that loses acknowledgements", columns, rows)
    without, with_ = outcomes
    console().print(
        f"Every lost acknowledgement made the producer send again. Without idempotence "
        f"{without.duplicates} records are stored twice; with it, {with_.duplicates}.",
        soft_wrap=True,
    )
