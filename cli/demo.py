"""`echoless demo`: why idempotence matters, in a few seconds and without any set-up.

A broker on free ports, a fault rule that loses acknowledgements, and a real producer that sends the
same records twice: once without and once with idempotence.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from echoless.cli.errors import CommandError
from echoless.cli.options import Json
from echoless.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from echoless.cli.demonstration.run import DemoResult
    from echoless.testkit.faults import FaultRule, Faults

_SEED: Final = 2
"""Seed of the losses; with it one acknowledgement is lost early, even in a short run."""
_RUNS = {"without idempotence": False, "with idempotence": True}


def demo(
    records: Annotated[int, typer.Option(min=1, max=100_000, help="Records to send.")] = 1500,
    lose_every: Annotated[
        int, typer.Option(min=0, help="Lose one in N acknowledgements; 0 loses none.")
    ] = 5,
    as_json: Json = False,
) -> None:
    """Lose acknowledgements on purpose, and count what is stored without and with idempotence."""
    with _progress() as progress:
        outcomes = _play(records, lose_every, progress)
    if as_json:
        print_json([dataclasses.asdict(outcome) for outcome in outcomes])
    else:
        _show(outcomes)
    if any(one.idempotence and (one.duplicates or one.lost) for one in outcomes):
        raise CommandError("idempotence did not hold; please report this with the output above")


def _play(records: int, lose_every: int, progress: Progress) -> list[DemoResult]:
    """Both runs, one after the other, against one broker."""
    from echoless.cli.demonstration.run import PARTITIONS, DemoError, run
    from echoless.testkit.admin import Admin
    from echoless.testkit.broker_process import BrokerProcess, BrokerStartError
    from echoless.testkit.faults import Faults

    outcomes = []
    try:
        with BrokerProcess({"num_partitions": str(PARTITIONS)}) as broker:
            faults = Faults(Admin(broker.admin))
            for name, idempotence in _RUNS.items():
                topic, advance = name.replace(" ", "-"), _advancer(progress, name, records)
                with _losses(faults, lose_every) as rule:
                    outcome = asyncio.run(
                        run(
                            broker.bootstrap_servers,
                            topic,
                            records,
                            idempotence=idempotence,
                            advance=advance,
                        )
                    )
                    outcome.acknowledgements_lost = 0 if rule is None else rule.hits
                outcomes.append(outcome)
    except BrokerStartError as error:
        raise CommandError(str(error)) from error
    except (DemoError, TimeoutError) as error:
        raise CommandError(f"the run {name} failed: {error!r}") from error
    return outcomes


def _losses(faults: Faults, lose_every: int) -> AbstractContextManager[FaultRule | None]:
    """Loses answers as if the network broke between the append and the producer's read."""
    if not lose_every:
        return nullcontext()
    return faults.rule(
        "close_after", match={"api": "produce"}, probability=1 / lose_every, seed=_SEED
    )


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


def _show(outcomes: Sequence[DemoResult]) -> None:
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
