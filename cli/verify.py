"""`echoless verify`: an offline, read-only check of everything in a data directory.

Checks checksums, the order of offsets, leader epochs, the de-duplication decision replayed over every
batch, producer snapshots compared with that replay, indexes, checkpoints, and whether the partition
directories agree with the coordinator: the embedded one, or the one that `--coordinator` names. Exits with
1 and the list of problems if there are any.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from echoless.broker.config.loading import Config, ConfigError, load_config
from echoless.cli.data_files import refuse_if_in_use
from echoless.cli.errors import CommandError
from echoless.cli.options import Json
from echoless.cli.output import console, print_json, print_table
from echoless.cli.verification.coordination import ComparedCoordinator
from echoless.cli.verification.directory import StoredPartition, check_directory, find_partitions
from echoless.cli.verification.findings import Findings
from echoless.cli.verification.partition import PartitionSummary


def verify(
    data_dir: Annotated[str, typer.Argument(help="The data directory of a stopped broker.")],
    config: Annotated[
        str | None, typer.Option(metavar="FILE.toml", help="The broker's configuration file.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="As for serve: what the broker ran with."),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="embedded|zookeeper://HOST:PORT,.../CHROOT",
            help="What to compare the directories with. Default: the embedded one, if it was used.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a data directory: checksums, offsets, sequences, snapshots, indexes, topics."""
    data_dir = data_dir.rstrip("/")
    compared = ComparedCoordinator(
        _config(config, set_ or [], coordinator), coordinator is not None
    )
    places = find_partitions(data_dir)
    refuse_if_in_use(data_dir)
    findings = Findings()
    with _progress(places) as progress:
        task = progress.add_task("checking", total=sum(place.size_bytes for place in places))
        advance: Callable[[int], None] = lambda size: progress.update(task, advance=size)  # noqa: E731
        summaries = check_directory(data_dir, places, compared, findings, advance)
    if as_json:
        _print_json(data_dir, summaries, findings)
    else:
        _show(data_dir, summaries, findings)
    if findings.problem_count:
        raise typer.Exit(1)


def _config(path: str | None, pairs: list[str], coordinator: str | None) -> Config:
    arguments = [part for pair in pairs for part in ("--set", pair)]
    if coordinator is not None:
        arguments += ["--coordinator", coordinator]
    if path is not None:
        arguments += ["--config", path]
    try:
        return load_config(arguments, os.environ)
    except ConfigError as error:
        raise CommandError(str(error)) from error


def _progress(places: list[StoredPartition]) -> Progress:
    """A bar on standard error, for a terminal only."""
    shown = console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=shown,
        transient=True,
        disable=not shown.is_terminal or not places,
    )


def _print_json(data_dir: str, summaries: list[PartitionSummary], findings: Findings) -> None:
    print_json(
        {
            "data_dir": data_dir,
            "partitions": [dataclasses.asdict(summary) for summary in summaries],
            "problem_count": findings.problem_count,
            "problems": findings.problems,
            "notes": findings.notes,
        }
    )


def _show(data_dir: str, summaries: list[PartitionSummary], findings: Findings) -> None:
    columns = [f.name.replace("_", " ") for f in dataclasses.fields(PartitionSummary)]
    rows = [dataclasses.astuple(summary) for summary in summaries]
    print_table(f"{data_dir}: {len(rows)} partitions", columns, rows)
    out = console()
    for note in findings.notes:
        out.print(f"note: {note}", soft_wrap=True)
    for problem in findings.problems:
        out.print(f"problem: {problem}", style="red", soft_wrap=True)
    hidden = findings.problem_count - len(findings.problems)
    if hidden:
        out.print(f"and {hidden} problems more", style="red")
    verdict = f"{findings.problem_count} problems" if findings.problem_count else "no problems"
    out.print(verdict, style="bold red" if findings.problem_count else "bold green")
