"""`echoless record`: what clients do, and what brokers decide about it, in one file that can be played again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from echoless.cli.admin import admin_ports, refused
from echoless.cli.errors import CommandError
from echoless.cli.options import ADMIN_DEFAULT, AdminAddresses, AdminConfig, AdminTokenFile
from echoless.cli.output import counted
from echoless.cli.selection import PartitionFilter, ProducerFilter, TopicFilter

_LOOK_EVERY_S: Final = 0.05
_FORBIDDEN: Final = 403


def record(  # noqa: PLR0917 - typer makes options of them
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="The file; an old one is replaced.")
    ],
    admin: AdminAddresses = None,
    admin_token_file: AdminTokenFile = None,
    command_config: AdminConfig = None,
    seconds: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", min=0, help="So long; without it, until Ctrl-C."),
    ] = None,
    records: Annotated[
        bool,
        typer.Option("--records/--no-records", help="With the records, or with their sizes alone."),
    ] = True,
    producer_id: ProducerFilter = None,
    topic: TopicFilter = None,
    partition: PartitionFilter = None,
) -> None:
    """Record requests, decisions and faults, to be drawn by echoless trace and played again by echoless replay."""
    from echoless.testkit.admin import AdminError
    from echoless.testkit.recorder import Recorder
    from echoless.testkit.recording.file import RecordingFile

    ports = admin_ports(admin or [ADMIN_DEFAULT], admin_token_file, command_config)
    end = None if seconds is None else time.monotonic() + seconds
    try:
        with RecordingFile(file, with_records=records) as recording:
            recorder = Recorder(
                **ports._asdict(),
                requests=True,
                records=records,
                keep=recording.add,
                producer_id=producer_id,
                topic=topic,
                partition=partition,
            )
            with recorder:
                recording.begin()  # an old recording stays until a broker has answered
                typer.echo("recording" + ("; Ctrl-C ends it" if end is None else ""), err=True)
                try:
                    while not recorder.has_ended and (end is None or time.monotonic() < end):
                        time.sleep(_LOOK_EVERY_S)
                except KeyboardInterrupt:
                    pass  # the way to end it
            counts = recording.counts
            if recording.failure is not None:
                raise recording.failure
    except AdminError as error:
        if records and error.status == _FORBIDDEN:
            raise CommandError(f"{error}; or leave the records out: --no-records") from error
        raise refused(error) from error
    except OSError as error:
        raise CommandError(f"{file}: {error}") from error
    kinds = ("request", "decision", "fault")
    typer.echo(
        f"wrote {file}: " + ", ".join(counted(counts[kind], kind) for kind in kinds), err=True
    )
    if counts["lost"]:
        raise CommandError(
            f"{counted(counts['lost'], 'event')} came faster than they could be written, and are missing"
        )
