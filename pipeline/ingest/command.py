"""`python -m echoless.spark ingest`: files to a topic, each row once."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from echoless.client.cluster import parse_addresses
from echoless.pipeline.exactly_once.default_places import default_places
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.ledger_files import open_ledger_files
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from echoless.pipeline.ingest.plan import IngestPlan
from echoless.pipeline.ingest.run import Ingest
from echoless.pipeline.ingest.settings import (
    BATCH_BYTES_DEFAULT,
    FORMATS,
    MIB,
    SPLIT_BYTES_DEFAULT,
    IngestSettings,
)
from echoless.pipeline.security_arguments import file_options, refuse_secrets
from echoless.pipeline.session import open_session
from echoless.pipeline.streaming.figures import StreamFigures
from echoless.pipeline.streaming.job import Job, fail, pairs
from echoless.pipeline.streaming.locations import default_ledger, resolve_location

_PLAN = "echoless-ingest"


def ingest_command(
    paths: Annotated[
        list[str], typer.Argument(help="Files, directories with all below, or patterns.")
    ],
    *,
    file_format: Annotated[
        str, typer.Option("--format", metavar="|".join(FORMATS), help="json: a value on each line.")
    ],
    target: Annotated[
        str, typer.Option("--to", metavar="HOST:PORT[,...]", help="The cluster to write.")
    ],
    topic: Annotated[str, typer.Option(help="The topic to write.")],
    checkpoint: Annotated[
        str, typer.Option(metavar="DIR", help="Stores the progress; kept between runs.")
    ],
    key_column: Annotated[str | None, typer.Option(help="Becomes the key.")] = None,
    value_column: Annotated[
        str | None, typer.Option(help="Becomes the value; default: the whole row as JSON.")
    ] = None,
    partition_column: Annotated[
        str | None, typer.Option(help="Holds the partition; default: chosen by key.")
    ] = None,
    timestamp_column: Annotated[
        str | None, typer.Option(help="A timestamp, or milliseconds.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="DDL", help="Columns and types; default: detected.")
    ] = None,
    reader_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of Spark's reader: sep=;"),
    ] = None,
    in_order: Annotated[
        bool, typer.Option("--in-order", help="Keep the order of files and rows; one task.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Continue with files that arrive later.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option(min=0.01, help="Seconds between two searches for files, with --watch.")
    ] = 5.0,
    batch_mib: Annotated[int, typer.Option(min=1, help="Files of about this size per batch.")] = (
        BATCH_BYTES_DEFAULT // MIB
    ),
    split_mib: Annotated[int, typer.Option(min=1, help="Part of a file per task.")] = (
        SPLIT_BYTES_DEFAULT // MIB
    ),
    name: Annotated[str, typer.Option(help="The sink's name in the ledger.")] = "ingest",
    ledger: Annotated[
        str | None, typer.Option(metavar="URI", help="Default: in the checkpoint.")
    ] = None,
    target_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the sink: docs/sink.md."),
    ] = None,
    target_config: Annotated[
        str | None,
        typer.Option("--to-config", metavar="FILE", help="Properties with its security options."),
    ] = None,
    metrics_listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; default: local[*].")] = None,
) -> None:
    """Write the rows of files to a topic, each once."""
    if file_format not in FORMATS:
        raise typer.BadParameter(f"one of {', '.join(FORMATS)}", param_hint="--format")
    try:
        parse_addresses(target)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--to") from error
    settings = IngestSettings(
        format=file_format,
        topic=topic,
        key_column=key_column,
        value_column=value_column,
        partition_column=partition_column,
        timestamp_column=timestamp_column,
        schema=schema,
        reader_options=pairs(reader_option, "--reader-option"),
        in_order=in_order,
        split_bytes=split_mib * MIB,
        batch_bytes=batch_mib * MIB,
        name=name,
        ledger=ledger or "",
    )
    progress = resolve_location(checkpoint)
    target_options = pairs(target_option, "--target-option")
    refuse_secrets(target_options, "--target-option", "--to-config")
    options = {
        "kafka.bootstrap.servers": target,
        **file_options(target_config, "--to-config", has_ledger=True),
        **target_options,
    }
    try:
        sink = ExactlyOnceSink(
            options, name=name, ledger=ledger or default_ledger(progress), topic=topic
        )
        session = open_session(f"echoless ingest {name}", master=master)
        store = replace(sink.options.store, hadoop=default_places(session).stores.hadoop)
        plan = IngestPlan(open_ledger_files(f"{progress}/{_PLAN}", store))
    except SinkError as error:
        fail(f"{name}: {error}")
    ingest = Ingest(
        session=session,
        plan=plan,
        settings=settings,
        paths=[resolve_location(path) for path in paths],
        watch_s=interval_s if watch else None,
    )
    job = Job(
        kind="ingest",
        name=name,
        metrics_listen=metrics_listen,
        figures=StreamFigures(lag_unit="files"),
    )
    job.run(ingest.run, sink.write)
